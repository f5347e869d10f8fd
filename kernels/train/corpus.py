"""Local text as tokens, and windows drawn from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernels.errors import WorkloadError
from kernels.workload.tokenizer import BOS, EOS

MOST_BYTES = 256 * 1024 * 1024
HELD_OUT = 0.05


@dataclass(frozen=True)
class Corpus:
    """Tokens to train on, and the end of the text, which is only looked at to judge."""

    training: NDArray[np.int64]
    held_out: NDArray[np.int64]


@dataclass(frozen=True)
class Windows:
    """A batch: what comes in, what should come out, and at which positions. All [B, T]."""

    tokens: NDArray[np.int64]
    following: NDArray[np.int64]
    positions: NDArray[np.int64]


def read_corpus(files: Sequence[Path], window: int) -> Corpus:
    """Read files as bytes, each between begin and end of sequence. Raises WorkloadError."""
    pieces: list[NDArray[np.int64]] = []
    for file in files:
        text = np.frombuffer(_read(file), np.uint8).astype(np.int64)
        pieces.append(np.concatenate(([BOS], text, [EOS])))
    tokens = np.concatenate(pieces)
    cut = round(len(tokens) * (1 - HELD_OUT))
    if len(tokens) - cut <= window:
        needed = round((window + 1) / HELD_OUT)
        raise WorkloadError(f"too little text: {len(tokens)} bytes, want {needed} or more")
    return Corpus(tokens[:cut], tokens[cut:])


def draw(
    tokens: NDArray[np.int64], shape: tuple[int, int], context: int, rng: np.random.Generator
) -> Windows:
    """Draw windows of the text, `shape` [B, T].

    Every other one stands at the beginning of the context and the rest anywhere in it: so all positions are learned by
    windows that are much shorter.
    """
    count, width = shape
    starts = rng.integers(0, len(tokens) - width, count)
    places = np.where(np.arange(count) % 2, rng.integers(0, context - width + 1, count), 0)
    steps = np.arange(width)
    at = starts[:, None] + steps
    return Windows(tokens[at], tokens[at + 1], places[:, None] + steps)


def _read(file: Path) -> bytes:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise WorkloadError(f"--text {file}: larger than {MOST_BYTES >> 20} MiB: split it")
        return file.read_bytes()
    except OSError as error:
        raise WorkloadError(f"--text {file}: {error.strerror}") from error
