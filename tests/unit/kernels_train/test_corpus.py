"""Text as tokens and windows, on text whose tokens are known."""

from pathlib import Path

import numpy as np
import pytest

from kernels.cli import main
from kernels.errors import WorkloadError
from kernels.train.corpus import draw, read_corpus
from kernels.workload.tokenizer import BOS, EOS

TEXT = bytes(range(256)) * 4


def test_files_are_bytes_between_begin_and_end(tmp_path: Path) -> None:
    """Nothing is lost or decoded; the end of the text is held out."""
    files = [tmp_path / name for name in ("a", "b")]
    for file in files:
        file.write_bytes(TEXT)
    corpus = read_corpus(files, window=8)
    whole = np.concatenate((corpus.training, corpus.held_out))
    assert whole.tolist() == [BOS, *TEXT, EOS] * 2
    assert len(corpus.held_out) == round(len(whole) * 0.05)


def test_windows_are_the_text_and_what_follows_it() -> None:
    """Every example is a piece of the text; positions are in the context, half of them from its start."""
    tokens = np.arange(1000)
    windows = draw(tokens, (64, 16), 40, np.random.default_rng(1))
    assert (windows.following == windows.tokens + 1).all()
    assert (np.diff(windows.tokens, axis=1) == 1).all()
    assert (np.diff(windows.positions, axis=1) == 1).all()
    first = windows.positions[:, 0]
    assert (first[::2] == 0).all()
    assert first[1::2].max() > 0
    assert windows.positions.max() < 40


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    """The message says how much it takes."""
    file = tmp_path / "short"
    file.write_bytes(b"short")
    with pytest.raises(WorkloadError, match="want 2580 or more"):
        read_corpus([file], window=128)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--text", "{folder}/missing"), "missing: No such file"),
        (("--text", "{folder}"), "Is a directory"),
        (("--text", "{folder}/text", "--window", "999"), "--window"),
        (("--text", "{folder}/text", "--heads", "7"), "--heads"),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    """The exit code is 2, and torch need not be there to say so."""
    (tmp_path / "text").write_bytes(TEXT * 10)
    filled = [word.format(folder=tmp_path) for word in words]
    assert main(["train", *filled, "--out", str(tmp_path / "w.npz")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
