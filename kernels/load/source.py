"""Where arrivals and raw lengths come from: quantile tables, or a trace file replayed."""

import csv
import gzip
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TextIO, cast

from kernels.errors import WorkloadError
from kernels.load.azure import CONVERSATION, TraceQuantiles
from kernels.load.shape import OUTPUT, PROMPT, GapTable, LengthScale, Target, inverse

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_FIT_POINTS = 1_000


@dataclass(frozen=True)
class Lengths:
    """What prompts and answers are brought to."""

    prompt: Target = PROMPT
    output: Target = OUTPUT


USUAL = Lengths()


@dataclass(frozen=True)
class Draw:
    """One request: gap to the one before as a multiple of the mean gap, and scaled lengths."""

    gap: float
    prompt_tokens: int
    output_tokens: int


class Source(Protocol):
    """An endless sequence of requests."""

    def draw(self, rng: random.Random) -> Draw:
        """Give the next request."""

    def describe(self) -> dict[str, object]:
        """Say what is drawn from and how it is scaled, as data to print."""


class TableSource:
    """Lengths from a trace's quantiles; gaps from the conversation trace, which is unscripted."""

    def __init__(self, trace: TraceQuantiles, lengths: Lengths = USUAL) -> None:
        levels = [(step + 0.5) / _FIT_POINTS for step in range(_FIT_POINTS)]
        self._trace = trace
        self._gaps = GapTable(CONVERSATION.gaps)
        prompts = [inverse(trace.input_tokens, p) for p in levels]
        outputs = [inverse(trace.output_tokens, p) for p in levels]
        self._prompt = LengthScale.fit(prompts, lengths.prompt)
        self._output = LengthScale.fit(outputs, lengths.output)

    def draw(self, rng: random.Random) -> Draw:
        """Draw each figure on its own by inverse transform."""
        return Draw(
            self._gaps.draw(rng),
            self._prompt.apply(inverse(self._trace.input_tokens, rng.random())),
            self._output.apply(inverse(self._trace.output_tokens, rng.random())),
        )

    def describe(self) -> dict[str, object]:
        """Say which table it is and how it is scaled."""
        return {
            "source": f"azure-llm-2023 {self._trace.name} quantiles",
            "prompt_scale": self._prompt.describe(),
            "output_scale": self._output.describe(),
            "gap_cv": round(self._gaps.cv, 3),
        }


class FileSource:
    """Replays a trace file in order, from the start again when it ends."""

    def __init__(
        self, name: str, rows: Sequence[tuple[float, float, float]], lengths: Lengths = USUAL
    ) -> None:
        gaps = [later[0] - earlier[0] for earlier, later in pairwise(rows)]
        mean = sum(gaps) / len(gaps)
        self._name = name
        self._rows = rows
        self._gaps = [1.0, *(gap / mean for gap in gaps)]
        self._cv = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean
        self._prompt = LengthScale.fit([row[1] for row in rows], lengths.prompt)
        self._output = LengthScale.fit([row[2] for row in rows], lengths.output)
        self._next = 0

    def draw(self, rng: random.Random) -> Draw:  # noqa: ARG002 - a replay leaves nothing to chance
        """Give the next row."""
        index, self._next = self._next, (self._next + 1) % len(self._rows)
        _, context, generated = self._rows[index]
        return Draw(self._gaps[index], self._prompt.apply(context), self._output.apply(generated))

    def describe(self) -> dict[str, object]:
        """Say which file it is and how it is scaled."""
        return {
            "source": self._name,
            "rows": len(self._rows),
            "prompt_scale": self._prompt.describe(),
            "output_scale": self._output.describe(),
            "gap_cv": round(self._cv, 3),
        }


def read_trace(path: Path, lengths: Lengths = USUAL) -> FileSource:
    """Read a CSV (or .csv.gz) with the columns TIMESTAMP, ContextTokens, GeneratedTokens."""
    try:
        with _open(path) as file:
            rows = sorted(_row(record) for record in csv.DictReader(file))
    except (OSError, EOFError, UnicodeDecodeError) as exc:
        raise WorkloadError(f"cannot read --trace {path}: {exc}") from exc
    except (KeyError, TypeError, ValueError) as exc:
        raise WorkloadError(
            f"--trace {path} needs the columns {', '.join(COLUMNS)}: {exc}"
        ) from exc
    if len(rows) < 2 or rows[0][0] == rows[-1][0]:
        raise WorkloadError(f"--trace {path} needs two requests at different times or more")
    return FileSource(path.name, rows, lengths)


def _open(path: Path) -> TextIO:
    """Open a plain or gzipped file as text."""
    if path.suffix == ".gz":
        return cast("TextIO", gzip.open(path, "rt", newline=""))
    return path.open(newline="")


def _row(record: dict[str, str]) -> tuple[float, float, float]:
    """Convert one record; the traces carry seven digits of a second, datetime takes six."""
    stamp, context, generated = (record[name] for name in COLUMNS)
    whole, _, fraction = stamp.partition(".")
    moment = datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()
    return moment + float(f"0.{fraction or 0}"), float(context), float(generated)
