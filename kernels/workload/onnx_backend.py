"""The CPU runtime: ONNX Runtime on one thread, the KV cache in numpy beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
)

from kernels.errors import WorkloadError
from kernels.workload.backend import Batch
from kernels.workload.kv_blocks import BLOCK_TOKENS
from kernels.workload.kv_pool import KvPool
from kernels.workload.model import ModelSpec

MASKED = np.float32(-1e9)


class OnnxBackend:
    """Runs the graph of `model.build`; the calling thread does all the work itself.

    The runtime reads rows in place, so that a block that several sequences begin with is copied into the row of each: a
    copy costs a hundredth of computing it.
    """

    def __init__(self, path: Path, spec: ModelSpec, rows: int, blocks: int = 0) -> None:
        self._session = _session(path)
        self._pool = KvPool(2 * spec.layers, rows, spec.heads, spec.head_size, spec.context)
        # Zeroed pages cost nothing until touched.
        self._saved = np.zeros(
            (blocks, 2 * spec.layers, spec.heads, BLOCK_TOKENS, spec.head_size), np.float32
        )
        self._names = [
            f"past_{part}.{layer}" for layer in range(spec.layers) for part in ("key", "value")
        ]
        self._nothing = np.zeros((spec.heads, 0, spec.head_size), np.float32)

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Append the batch's tokens to its rows; logits [B, V] after each row's last real token."""
        count, width = batch.tokens.shape
        first_prefill = not batch.past.any()
        in_use = batch.first_row + (0 if first_prefill else count)
        self._pool.reserve(max(in_use, batch.held), int((batch.past + batch.fresh).max()))
        if first_prefill:
            past = [np.broadcast_to(self._nothing, (count, *self._nothing.shape))] * len(
                self._names
            )
        else:
            past = self._pool.rows(batch.first_row, count)
        feeds: dict[str, NDArray[Any]] = dict(zip(self._names, past, strict=True))
        feeds["tokens"] = batch.tokens
        # Padding stands at positions that may lie past the context: clip, nobody reads it.
        feeds["positions"] = np.minimum(
            batch.past[:, None] + np.arange(width), self._pool.context - 1
        )
        feeds["mask"] = _mask(batch, past[0].shape[2])
        logits, fresh = self._session.run(None, feeds)
        self._pool.append(batch.first_row, batch.past, batch.fresh, fresh)
        last: NDArray[np.float32] = logits[np.arange(count), batch.fresh - 1]
        return last

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` cached tokens of one row over another."""
        self._pool.move(source, target, length)

    def save(self, row: int, start: int, block: int) -> None:
        """Copy a block's worth of a row's tokens from `start` on to `block`."""
        self._saved[block] = self._pool.read(row, start, BLOCK_TOKENS)

    def load(self, row: int, blocks: Sequence[int], held: int) -> None:
        """Copy blocks to the start of a row, while the first `held` rows keep what they have."""
        self._pool.reserve(held, len(blocks) * BLOCK_TOKENS)
        for at, block in enumerate(blocks):
            start = at * BLOCK_TOKENS
            self._pool.read(row, start, BLOCK_TOKENS)[:] = self._saved[block]


def _mask(batch: Batch, stride: int) -> NDArray[np.float32]:
    """[B, 1, T, P+T]: old tokens up to each row's length, new tokens up to the query itself."""
    count, width = batch.tokens.shape
    mask = np.zeros((count, 1, width, stride + width), np.float32)
    mask[..., :stride] = np.where(np.arange(stride) < batch.past[:, None], 0, MASKED)[:, None, None]
    if width > 1:
        mask[..., stride:] = np.triu(np.full((width, width), MASKED), k=1)
    return mask


def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    # One thread, no spinning: waiting for a CPU then shows up where it happens, in this thread.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except (Fail, InvalidGraph, InvalidProtobuf, NoSuchFile) as error:
        raise WorkloadError(f"cannot load {path}: {error}: delete it, it is built again") from error
