"""Weights in a file: the graph computes with them, and a file that is not what it should be is refused."""

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.errors import WorkloadError
from kernels.workload.backend import Batch
from kernels.workload.model import ModelSpec, Weights, cached_model, shapes, weights
from kernels.workload.onnx_backend import OnnxBackend
from kernels.workload.weights_file import load_weights, save_weights, trained
from tests.support.workload_numpy import logits
from tests.support.workload_process import serving

SPEC = ModelSpec(layers=1, hidden=32, heads=2, context=64)
PROMPT = [256, *b"some prompt"]


def other_weights() -> Weights:
    """Draw weights that no default model has."""
    return weights(dataclasses.replace(SPEC, seed=99))


def served(folder: Path, spec: ModelSpec, file: Path | None) -> NDArray[np.float32]:
    """Build the graph and score what follows the prompt."""
    model = cached_model(spec, folder / "cache", trained(file, spec) if file else None)
    backend = OnnxBackend(model, spec, 1)
    batch = Batch(0, np.array([PROMPT]), np.array([0]), np.array([len(PROMPT)]))
    last: NDArray[np.float32] = backend.forward(batch)[0]
    return last


def test_every_weight_is_named_with_its_shape() -> None:
    """What is drawn and what is asked of a file are the same."""
    assert shapes(SPEC) == {name: value.shape for name, value in weights(SPEC).items()}


def test_the_graph_computes_with_the_files_weights(tmp_path: Path) -> None:
    """Its logits are those of a plain transformer with the same weights, and not those of the default."""
    file = tmp_path / "w.npz"
    values = other_weights()
    save_weights(file, SPEC, values)
    scored = served(tmp_path, SPEC, file)
    printable = slice(32, 127)
    assert np.abs(scored - logits(SPEC, PROMPT, values)[-1])[printable].max() < 1e-4
    assert np.abs(scored - served(tmp_path, SPEC, None))[printable].max() > 0.1


def test_another_content_is_another_model(tmp_path: Path) -> None:
    """Training again into the same file is noticed; the default model is found as before."""
    file, values = tmp_path / "w.npz", other_weights()
    built = [cached_model(SPEC, tmp_path)]
    for factor in (1, 2):
        save_weights(file, SPEC, {name: value * factor for name, value in values.items()})
        built.append(cached_model(SPEC, tmp_path, trained(file, SPEC)))
    assert len(set(built)) == 3
    assert cached_model(SPEC, tmp_path) == built[0]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda v: v | {"0.qkv": v["0.qkv"][:, :-1]}, "0.qkv is damaged"),
        (lambda v: v | {"head": np.full_like(v["head"], np.nan)}, "head is damaged"),
        (lambda v: v | {"token": v["token"].astype(np.float64)}, "token is too large"),
        (lambda v: v | {"one": v["one"].astype(np.float16)}, "one is damaged"),
        (lambda v: {k: x for k, x in v.items() if k != "head.bias"}, "no weights of ours"),
    ],
)
def test_damaged_weights_are_refused(tmp_path: Path, damage: object, message: str) -> None:
    """Each array is checked before a model is built of it."""
    file = tmp_path / "w.npz"
    save_weights(file, SPEC, damage(other_weights()))  # type: ignore[operator]
    with pytest.raises(WorkloadError, match=message):
        load_weights(file, SPEC)


def test_weights_of_another_size_say_what_to_set(tmp_path: Path) -> None:
    """The message is the command line that works."""
    file = tmp_path / "w.npz"
    save_weights(file, SPEC, other_weights())
    with pytest.raises(
        WorkloadError,
        match="--set layers=1 --set hidden=32 --set heads=2 --set context=64",
    ):
        load_weights(file, ModelSpec(layers=2, hidden=32, heads=2, context=64))


class Harm:
    """What runs when it is unpickled."""

    def __reduce__(self) -> "tuple[object, ...]":
        """Raise where it is read."""
        return (pytest.fail, ("a pickle was run",))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"plain text" * 100])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    """Half a file, another kind of file and an empty one."""
    file = tmp_path / "w.npz"
    file.write_bytes(content)
    with pytest.raises(WorkloadError, match="no weights of ours"):
        load_weights(file, SPEC)


def test_no_pickle_is_run(tmp_path: Path) -> None:
    """A file from elsewhere cannot execute anything."""
    file = tmp_path / "w.npz"
    file.write_bytes(pickle.dumps(Harm()))
    with pytest.raises(WorkloadError):
        load_weights(file, SPEC)
    with file.open("wb") as opened:
        np.savez(opened, tailcause=np.array([Harm()], dtype=object))
    with pytest.raises(WorkloadError):
        load_weights(file, SPEC)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The server does not start without the weights that it was told to serve."""
    with pytest.raises(WorkloadError, match=r"nothing\.npz: No such file"):
        trained(tmp_path / "nothing.npz", SPEC)


def test_a_server_starts_with_them(tmp_path: Path) -> None:
    """`serve --weights` is warm and accepting."""
    file = tmp_path / "w.npz"
    spec = ModelSpec(layers=1, hidden=32, heads=2, context=512)
    save_weights(file, spec, weights(dataclasses.replace(spec, seed=5)))
    with serving(tmp_path, arguments=("--weights", str(file))) as server:
        assert server.process.poll() is None
