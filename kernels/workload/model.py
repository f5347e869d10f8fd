"""The model: a decoder-only transformer with deterministic weights, as one ONNX graph.

Pre-norm blocks as in GPT-2 (Radford et al., 2019), learned positions, tanh GELU. One graph serves
prefill and decode: the keys and values of earlier tokens come in, those of the new tokens go out,
and nothing inside the graph copies what came in.
"""

import hashlib
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from kernels.workload.cache import build_once
from kernels.workload.tokenizer import BOS, EOS, VOCABULARY

Weights = dict[str, NDArray[np.float32]]

OPSET = 20
IR_VERSION = 9  # the newest that every ONNX Runtime with opset 20 reads
GRAPH_REVISION = 1
"""Part of the cache key: bump it when the graph or the weights below change."""


@dataclass(frozen=True)
class ModelSpec:
    """What the builder needs; equal specs give byte-equal weights."""

    layers: int = 4
    hidden: int = 320
    heads: int = 5
    context: int = 512
    seed: int = 0
    vocabulary: int = VOCABULARY

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads


@dataclass(frozen=True)
class Trained:
    """Weights that were not drawn: the hash of their file, and how to read them."""

    digest: str
    load: Callable[[], Weights]


def weights(spec: ModelSpec) -> Weights:
    """Draw the weights; the head's bias keeps completions within printable ASCII."""
    generator = np.random.default_rng(spec.seed)

    def normal(*shape: int) -> NDArray[np.float32]:
        drawn = generator.standard_normal(shape, dtype=np.float32)
        return drawn * np.float32(shape[0] ** -0.5)

    width = spec.hidden
    drawn: Weights = {
        "token": generator.standard_normal((spec.vocabulary, width), dtype=np.float32),
        "position": 0.3 * generator.standard_normal((spec.context, width), dtype=np.float32),
        "head": normal(width, spec.vocabulary),
        "head.bias": _printable_bias(spec.vocabulary),
        "one": np.ones(width, np.float32),
        "zero": np.zeros(width, np.float32),
    }
    for layer in range(spec.layers):
        drawn[f"{layer}.qkv"] = normal(width, 3 * width)
        drawn[f"{layer}.out"] = normal(width, width)
        drawn[f"{layer}.up"] = normal(width, 4 * width)
        drawn[f"{layer}.down"] = normal(4 * width, width)
    return drawn


def shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Name every weight with its shape."""
    width = spec.hidden
    named: dict[str, tuple[int, ...]] = {
        "token": (spec.vocabulary, width),
        "position": (spec.context, width),
        "head": (width, spec.vocabulary),
        "head.bias": (spec.vocabulary,),
        "one": (width,),
        "zero": (width,),
    }
    for layer in range(spec.layers):
        named[f"{layer}.qkv"] = (width, 3 * width)
        named[f"{layer}.out"] = (width, width)
        named[f"{layer}.up"] = (width, 4 * width)
        named[f"{layer}.down"] = (4 * width, width)
    return named


def _printable_bias(vocabulary: int) -> NDArray[np.float32]:
    bias = np.full(vocabulary, -1e4, np.float32)
    bias[32:127] = 0.0
    bias[EOS] = 0.0
    bias[BOS] = -1e4
    return bias


class _Graph:
    """Collects nodes and constants under construction."""

    def __init__(self, values: Weights) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants = [numpy_helper.from_array(value, name) for name, value in values.items()]

    def add(self, kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        """Append a node with one output; the output's name comes back."""
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def split(self, inputs: list[str], outputs: list[str], **attributes: object) -> list[str]:
        """Append a Split."""
        self.nodes.append(helper.make_node("Split", inputs, outputs, **attributes))
        return outputs

    def integers(self, name: str, values: list[int]) -> str:
        """Add an int64 constant."""
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def scalar(self, name: str, value: float) -> str:
        """Add a float32 constant."""
        self.constants.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name


def build(spec: ModelSpec, values: Weights | None = None) -> onnx.ModelProto:
    """Build the graph, around trained weights or those that are drawn.

    Inputs: `tokens` and `positions` int64 [B, T]; `mask` float32 [B, 1, T, P+T], 0 where a query may
    look and a large negative number elsewhere; per layer `past_key.L`, `past_value.L` [B, H, P, D].
    Outputs: `logits` [B, T, V]; `fresh` [2·L, B, H, T, D], the new keys and values (key 0, value 0, …).
    """
    graph = _Graph(weights(spec) if values is None else values)
    graph.integers("heads.split", [0, 0, 3 * spec.heads, spec.head_size])
    graph.integers("heads.merge", [0, 0, spec.hidden])
    graph.integers("axis.0", [0])
    graph.scalar("scale", spec.head_size**-0.5)
    _lengths(graph)
    graph.add("Gather", ["token", "tokens"], "embedded")
    graph.add("Gather", ["position", "positions"], "placed")
    stream = graph.add("Add", ["embedded", "placed"], "stream")
    fresh: list[str] = []
    for layer in range(spec.layers):
        stream = _attention(graph, f"{layer}.", stream, fresh)
        stream = _feed_forward(graph, f"{layer}.", stream)
    graph.add("Concat", fresh, "fresh", axis=0)
    _norm(graph, stream, "final")
    graph.add("MatMul", ["final", "head"], "unbiased")
    graph.add("Add", ["unbiased", "head.bias"], "logits")
    return _model(spec, graph)


def _lengths(graph: _Graph) -> None:
    """`lengths` = [P, T], by which attention weights are split into old and new tokens."""
    graph.add("Shape", ["past_key.0"], "length.past", start=2, end=3)
    graph.add("Shape", ["tokens"], "length.new", start=1, end=2)
    graph.add("Concat", ["length.past", "length.new"], "lengths", axis=0)


def _norm(graph: _Graph, source: str, output: str) -> str:
    return graph.add("LayerNormalization", [source, "one", "zero"], output, epsilon=1e-5)


def _attention(graph: _Graph, at: str, stream: str, fresh: list[str]) -> str:
    layer = at.rstrip(".")
    _norm(graph, stream, at + "normed")
    graph.add("MatMul", [at + "normed", at + "qkv"], at + "projected")
    graph.add("Reshape", [at + "projected", "heads.split"], at + "by_head")  # [B, T, 3H, D]
    graph.add("Transpose", [at + "by_head"], at + "head_first", perm=[0, 2, 1, 3])  # [B, 3H, T, D]
    query, key, value = graph.split(
        [at + "head_first"], [at + part for part in "qkv"], axis=1, num_outputs=3
    )
    fresh.extend(graph.add("Unsqueeze", [part, "axis.0"], f"{part}.fresh") for part in (key, value))
    # Old and new tokens are scored apart and joined as scores: joining keys would copy the cache.
    old = _scores(graph, query, f"past_key.{layer}", at + "old")
    new = _scores(graph, query, key, at + "new")
    graph.add("Concat", [old, new], at + "scores", axis=3)  # [B, H, T, P+T]
    graph.add("Mul", [at + "scores", "scale"], at + "scaled")
    graph.add("Add", [at + "scaled", "mask"], at + "masked")
    graph.add("Softmax", [at + "masked"], at + "weights", axis=-1)
    graph.split([at + "weights", "lengths"], [at + "weights.old", at + "weights.new"], axis=3)
    graph.add("MatMul", [at + "weights.old", f"past_value.{layer}"], at + "read.old")
    graph.add("MatMul", [at + "weights.new", value], at + "read.new")
    graph.add("Add", [at + "read.old", at + "read.new"], at + "read")
    graph.add("Transpose", [at + "read"], at + "token_first", perm=[0, 2, 1, 3])
    graph.add("Reshape", [at + "token_first", "heads.merge"], at + "merged")
    graph.add("MatMul", [at + "merged", at + "out"], at + "mixed")
    return graph.add("Add", [stream, at + "mixed"], at + "attended")


def _scores(graph: _Graph, query: str, key: str, output: str) -> str:
    graph.add("Transpose", [key], output + ".key", perm=[0, 1, 3, 2])  # fused into the MatMul
    return graph.add("MatMul", [query, output + ".key"], output)


def _feed_forward(graph: _Graph, at: str, stream: str) -> str:
    _norm(graph, stream, at + "normed.2")
    graph.add("MatMul", [at + "normed.2", at + "up"], at + "wide")
    graph.add("Gelu", [at + "wide"], at + "active", approximate="tanh")
    graph.add("MatMul", [at + "active", at + "down"], at + "narrow")
    return graph.add("Add", [stream, at + "narrow"], at + "fed")


def _model(spec: ModelSpec, graph: _Graph) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    past = ["B", spec.heads, "P", spec.head_size]
    inputs = [
        value("tokens", TensorProto.INT64, ["B", "T"]),
        value("positions", TensorProto.INT64, ["B", "T"]),
        value("mask", TensorProto.FLOAT, ["B", 1, "T", "P+T"]),
    ]
    for layer in range(spec.layers):
        inputs.append(value(f"past_key.{layer}", TensorProto.FLOAT, past))
        inputs.append(value(f"past_value.{layer}", TensorProto.FLOAT, past))
    fresh = [2 * spec.layers, "B", spec.heads, "T", spec.head_size]
    outputs = [
        value("logits", TensorProto.FLOAT, ["B", "T", spec.vocabulary]),
        value("fresh", TensorProto.FLOAT, fresh),
    ]
    body = helper.make_graph(graph.nodes, "tailcause-reference", inputs, outputs, graph.constants)
    model = helper.make_model(
        body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.checker.check_model(model)
    return model


def cached_model(spec: ModelSpec, cache_dir: Path, trained: Trained | None = None) -> Path:
    """Path of the model's file, built on first use and named by a hash of what went into it."""
    identity = repr((GRAPH_REVISION, OPSET, astuple(spec), trained.digest if trained else ""))
    path = cache_dir / f"model-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.onnx"

    def build_model(target: Path) -> None:
        onnx.save_model(build(spec, trained.load() if trained else None), str(target))

    return build_once(path, build_model)
