"""The reference model written out in numpy: no cache, no batching, nothing shared with the graph."""

import numpy as np
from numpy.typing import NDArray

from kernels.workload.model import ModelSpec, weights

Array = NDArray[np.float32]


def logits(spec: ModelSpec, tokens: list[int], trained: dict[str, Array] | None = None) -> Array:
    """Logits [T, V] of a whole sequence in one go."""
    drawn = weights(spec) if trained is None else trained
    stream: Array = drawn["token"][tokens] + drawn["position"][np.arange(len(tokens))]
    for layer in range(spec.layers):
        stream = stream + _attention(spec, drawn, layer, _norm(stream))
        wide = _norm(stream) @ drawn[f"{layer}.up"]
        stream = stream + _gelu(wide) @ drawn[f"{layer}.down"]
    result: Array = _norm(stream) @ drawn["head"] + drawn["head.bias"]
    return result


def _norm(stream: Array) -> Array:
    centred = stream - stream.mean(axis=-1, keepdims=True)
    result: Array = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return result


def _gelu(x: Array) -> Array:
    result: Array = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return result


def _attention(spec: ModelSpec, drawn: dict[str, Array], layer: int, stream: Array) -> Array:
    count = len(stream)
    query, key, value = (
        part.reshape(count, spec.heads, spec.head_size)
        for part in np.split(stream @ drawn[f"{layer}.qkv"], 3, axis=1)
    )
    mixed = np.zeros((count, spec.heads, spec.head_size), np.float32)
    for head in range(spec.heads):
        for at in range(count):
            scores = key[: at + 1, head] @ query[at, head] / np.sqrt(spec.head_size)
            shares = np.exp(scores - scores.max())
            mixed[at, head] = shares / shares.sum() @ value[: at + 1, head]
    result: Array = mixed.reshape(count, spec.hidden) @ drawn[f"{layer}.out"]
    return result
