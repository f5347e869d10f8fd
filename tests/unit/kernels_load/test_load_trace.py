"""Replaying a trace file."""

import gzip
import random
from pathlib import Path

import pytest

from kernels.errors import WorkloadError
from kernels.load.source import read_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROWS = (
    "2023-11-16 18:17:03.0000000,100,10\n"
    "2023-11-16 18:17:04.0000000,200,20\n"
    "2023-11-16 18:17:07.0000000,400,40\n"
)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_gaps_are_multiples_of_the_mean_and_the_file_repeats(tmp_path: Path) -> None:
    """Gaps of 1 s and 3 s are 0.5 and 1.5 of their mean; after the end it starts again."""
    source = read_trace(write(tmp_path / "t.csv", HEADER + ROWS))
    rng = random.Random(0)

    gaps = [source.draw(rng).gap for _ in range(6)]

    assert gaps == pytest.approx([1.0, 0.5, 1.5, 1.0, 0.5, 1.5])


def test_lengths_are_scaled_in_order(tmp_path: Path) -> None:
    """The middle length becomes the target's median."""
    source = read_trace(write(tmp_path / "t.csv", HEADER + ROWS))
    rng = random.Random(0)
    draws = [source.draw(rng) for _ in range(3)]

    assert [draw.prompt_tokens for draw in draws][1] == 72
    assert [draw.output_tokens for draw in draws][1] == 14
    assert draws[0].prompt_tokens < draws[1].prompt_tokens < draws[2].prompt_tokens


def test_gzip_is_read_as_it_is(tmp_path: Path) -> None:
    """The traces are stored packed."""
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress((HEADER + ROWS).encode()))

    assert read_trace(packed).describe()["rows"] == 3


def test_rows_out_of_order_are_sorted(tmp_path: Path) -> None:
    """No gap is negative."""
    first, second, third = ROWS.splitlines(keepends=True)
    source = read_trace(write(tmp_path / "t.csv", HEADER + third + first + second))
    rng = random.Random(0)

    assert all(source.draw(rng).gap > 0 for _ in range(6))


@pytest.mark.parametrize(
    "text",
    ["", HEADER, HEADER + "2023-11-16 18:17:03.0,1,1\n", "a,b\n1,2\n", HEADER + "noon,1,1\n"],
    ids=["empty", "no rows", "one row", "other columns", "no time"],
)
def test_a_file_of_another_kind_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    """The message says what the file needs."""
    with pytest.raises(WorkloadError, match="--trace"):
        read_trace(write(tmp_path / "t.csv", text))


def test_a_broken_gzip_is_refused_in_one_line(tmp_path: Path) -> None:
    """A download cut short is no traceback."""
    broken = tmp_path / "t.csv.gz"
    broken.write_bytes(gzip.compress((HEADER + ROWS).encode())[:-10])

    with pytest.raises(WorkloadError, match="cannot read --trace"):
        read_trace(broken)


def test_a_missing_file_is_refused_in_one_line(tmp_path: Path) -> None:
    """The path is in the message."""
    with pytest.raises(WorkloadError, match="gone"):
        read_trace(tmp_path / "gone.csv")
