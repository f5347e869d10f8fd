"""A real, very short training run, where torch is installed."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from kernels.cli import main
from kernels.workload.model import ModelSpec
from kernels.workload.weights_file import load_weights
from tests.support.workload_numpy import logits

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch (extra train)"
)

SIZE = ("--layers", "1", "--hidden", "32", "--heads", "2", "--context", "64", "--window", "32")
SPEC = ModelSpec(layers=1, hidden=32, heads=2, context=64)
WORD = b"abcd"


def run(folder: Path, steps: int, capsys: pytest.CaptureFixture[str], seed: int = 0) -> float:
    """Train on a text that repeats itself; its bits per byte."""
    (folder / "text").write_bytes(WORD * 2000)
    words = ("--text", str(folder / "text"), "--out", str(folder / "w.npz"), "--seed", str(seed))
    assert main(["train", *words, *SIZE, "--steps", str(steps)]) == 0
    told = json.loads(capsys.readouterr().out)
    return float(told["bits_per_byte"])


@pytest.mark.slow
def test_training_learns_and_the_file_predicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plain transformer with the file's weights continues the text as it should, at every position."""
    before, after = run(tmp_path, 1, capsys), run(tmp_path, 400, capsys)
    assert before > 7
    assert after < 0.5
    values = load_weights(tmp_path / "w.npz", SPEC)
    sequence = [256, *(WORD * 16)][: SPEC.context]
    best = logits(SPEC, sequence, values).argmax(axis=1)
    assert best[4:-1].tolist() == sequence[5:]


def test_equal_seeds_give_equal_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And other seeds others."""
    made = []
    for seed in (1, 1, 2):
        run(tmp_path, 3, capsys, seed)
        made.append(load_weights(tmp_path / "w.npz", SPEC)["token"])
    assert np.array_equal(made[0], made[1])
    assert not np.array_equal(made[1], made[2])


def test_torch_and_numpy_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model that is trained is the model that is served."""
    import torch  # noqa: PLC0415 - not everywhere

    from kernels.train import transformer  # noqa: PLC0415

    parameters = transformer.fresh_parameters(SPEC, 3)
    tokens = [256, *b"what is trained is served"]
    with torch.no_grad():
        scored = transformer.logits(
            parameters, SPEC, torch.tensor([tokens]), torch.arange(len(tokens))[None]
        )[0].numpy()
    plain = logits(SPEC, tokens, transformer.weights_of(parameters, SPEC))
    assert np.abs(scored - plain)[:, 32:127].max() < 1e-5
