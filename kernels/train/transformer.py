"""The served model once more, in torch: the same names, shapes and arithmetic as the ONNX graph."""

from collections.abc import Mapping

import numpy as np
import torch
from torch.nn import functional

from kernels.workload.model import ModelSpec, Weights, shapes
from kernels.workload.tokenizer import BOS

FIXED = ("one", "zero")
"""Scale and shift of the norms, which have none."""

_NEVER = -1e4
_SPREAD = 0.02

Parameters = dict[str, torch.Tensor]


def fresh_parameters(spec: ModelSpec, seed: int) -> Parameters:
    """Draw what training begins with, as GPT-2 does: small, and smaller where layers add up."""
    generator = torch.Generator().manual_seed(seed)
    parameters: Parameters = {}
    for name, shape in shapes(spec).items():
        if name in FIXED:
            continue
        spread = _SPREAD / (2 * spec.layers) ** 0.5 if name.endswith((".out", ".down")) else _SPREAD
        drawn = torch.randn(shape, generator=generator) * spread
        parameters[name] = torch.zeros(shape) if name == "head.bias" else drawn
        parameters[name].requires_grad_()
    return parameters


def logits(
    parameters: Mapping[str, torch.Tensor],
    spec: ModelSpec,
    tokens: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """Score what follows each token: [B, T] in, [B, T, V] out."""
    stream = parameters["token"][tokens] + parameters["position"][positions]
    for layer in range(spec.layers):
        stream = stream + _attention(parameters, spec, layer, _norm(stream))
        wide = functional.gelu(_norm(stream) @ parameters[f"{layer}.up"], approximate="tanh")
        stream = stream + wide @ parameters[f"{layer}.down"]
    return _norm(stream) @ parameters["head"] + parameters["head.bias"]


def weights_of(parameters: Mapping[str, torch.Tensor], spec: ModelSpec) -> Weights:
    """Hand the parameters over to the graph; the begin of a sequence is never generated."""
    values: Weights = {
        name: parameters[name].detach().numpy().astype(np.float32) for name in parameters
    }
    values["one"] = np.ones(spec.hidden, np.float32)
    values["zero"] = np.zeros(spec.hidden, np.float32)
    values["head.bias"] = values["head.bias"].copy()
    values["head.bias"][BOS] = _NEVER
    return values


def _norm(stream: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(stream, stream.shape[-1:], eps=1e-5)


def _attention(
    parameters: Mapping[str, torch.Tensor], spec: ModelSpec, layer: int, stream: torch.Tensor
) -> torch.Tensor:
    batch, width, _ = stream.shape
    by_head = (stream @ parameters[f"{layer}.qkv"]).reshape(
        batch, width, 3 * spec.heads, spec.head_size
    )
    query, key, value = by_head.transpose(1, 2).chunk(3, dim=1)  # each [B, H, T, D]
    read = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    merged = read.transpose(1, 2).reshape(batch, width, spec.hidden)
    return merged @ parameters[f"{layer}.out"]
