"""The ONNX graph and its KV cache against a plain numpy transformer."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.errors import WorkloadError
from kernels.workload.backend import Batch
from kernels.workload.model import ModelSpec, cached_model
from kernels.workload.onnx_backend import OnnxBackend
from kernels.workload.tokenizer import encode
from tests.support.workload_numpy import logits

SPEC = ModelSpec(layers=2, hidden=48, heads=3, context=160, seed=7)
ROWS = 4


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the graph once."""
    return cached_model(SPEC, tmp_path_factory.mktemp("model"))


@pytest.fixture
def backend(model_path: Path) -> OnnxBackend:
    """Return a backend with an empty cache."""
    return OnnxBackend(model_path, SPEC, ROWS)


def batch(first: int, tokens: list[list[int]], past: list[int]) -> Batch:
    """Pad rows of tokens to a batch."""
    padded = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
    for row, some in enumerate(tokens):
        padded[row, : len(some)] = some
    return Batch(first, padded, np.array(past), np.array([len(some) for some in tokens]))


def close(expected: NDArray[np.float32], actual: NDArray[np.float32]) -> bool:
    """Compare logits; the head's bias is left out, it would hide everything beside it."""
    printable = slice(32, 127)
    return bool(np.abs(expected[..., printable] - actual[..., printable]).max() < 1e-4)


def test_prefill_agrees_with_numpy(backend: OnnxBackend) -> None:
    """The logits after a prompt are those of the plain transformer."""
    prompt = encode("the quick brown fox")
    assert close(logits(SPEC, prompt)[-1], backend.forward(batch(0, [prompt], [0]))[0])


def test_decode_after_prefill_equals_one_prefill(backend: OnnxBackend) -> None:
    """Feeding a sequence in pieces through the cache gives the logits of feeding it whole."""
    tokens = encode("jumps over the lazy dog")
    backend.forward(batch(0, [tokens[:10]], [0]))
    backend.forward(batch(0, [tokens[10:15]], [10]))
    stepwise = [
        backend.forward(batch(0, [[one]], [at]))[0] for at, one in enumerate(tokens[15:], 15)
    ]
    assert close(logits(SPEC, tokens)[15:], np.array(stepwise))


def test_later_tokens_do_not_change_earlier_logits() -> None:
    """The reference itself is causal, so that the agreement above proves the graph causal."""
    tokens = encode("causal")
    assert close(logits(SPEC, tokens)[:4], logits(SPEC, tokens[:4]))


def test_batched_rows_equal_single_rows(backend: OnnxBackend) -> None:
    """Rows of different lengths, padded together, do not see each other or the padding."""
    prompts = [encode("a"), encode("several words here"), encode("two")]
    backend.forward(batch(0, prompts, [0, 0, 0]))
    actual = backend.forward(batch(0, [[65], [66], [67]], [len(one) for one in prompts]))
    expected = [
        logits(SPEC, [*one, last])[-1] for one, last in zip(prompts, (65, 66, 67), strict=True)
    ]
    assert close(np.array(expected), actual)


def test_a_row_joins_while_others_run_and_their_stride_grows(backend: OnnxBackend) -> None:
    """A long newcomer makes the pool re-stride; the rows that were there keep their cache."""
    short, long = encode("short"), encode("long " * 20)
    backend.forward(batch(0, [short], [0]))
    backend.forward(batch(1, [long], [0]))
    actual = backend.forward(batch(0, [[65], [66]], [len(short), len(long)]))
    expected = [logits(SPEC, [*short, 65])[-1], logits(SPEC, [*long, 66])[-1]]
    assert close(np.array(expected), actual)


def test_a_moved_row_continues_where_it_was(backend: OnnxBackend) -> None:
    """Moving a row over a freed one carries its context along."""
    gone, kept = encode("gone"), encode("this one stays")
    backend.forward(batch(0, [gone, kept], [0, 0]))
    backend.move(1, 0, len(kept))
    actual = backend.forward(batch(0, [[70]], [len(kept)]))
    assert close(logits(SPEC, [*kept, 70])[-1:], actual)


def test_a_sequence_fills_the_whole_context(backend: OnnxBackend) -> None:
    """The last position of the context is usable."""
    tokens = encode("x" * (SPEC.context - 1))
    backend.forward(batch(0, [tokens[:-1]], [0]))
    actual = backend.forward(batch(0, [tokens[-1:]], [SPEC.context - 1]))
    assert close(logits(SPEC, tokens)[-1:], actual)


def test_equal_specs_build_equal_bytes(model_path: Path, tmp_path: Path) -> None:
    """The build is deterministic."""
    again = cached_model(SPEC, tmp_path)
    assert (model_path.name, model_path.read_bytes()) == (again.name, again.read_bytes())


def test_another_seed_is_another_file(model_path: Path, tmp_path: Path) -> None:
    """The file's name follows what went into it."""
    other = cached_model(ModelSpec(layers=1, hidden=8, heads=1, seed=8), tmp_path)
    assert model_path.name != other.name


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """A truncated model says which file to delete."""
    broken = tmp_path / "model.onnx"
    broken.write_bytes(b"\x08\x09garbage")
    with pytest.raises(WorkloadError, match=r"model\.onnx.*delete it"):
        OnnxBackend(broken, SPEC, ROWS)
