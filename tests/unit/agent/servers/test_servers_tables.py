"""Every server's names, old and new, become ours with the numbers that its page has."""

import math
from collections import Counter

import pytest

from agent.servers import table
from agent.servers.normalise import Normaliser
from agent.servers.registry import BY_KIND, SERVERS
from agent.servers.table import Server
from agent.telemetry.keys import (
    FINISH_REASON,
    GEN_AI_MODEL,
    SERVER_ENGINE,
    SERVER_PHASE,
    SERVER_QUANTILE,
)
from agent.telemetry.metric import Kind
from agent.telemetry.model import Sample
from agent.telemetry.names import BY_NAME
from tests.support.page_server import recorded

NOW = 1_796_100_000_000_000_000
PAGES = (
    ("vllm", "vllm_v0"),
    ("vllm", "vllm_v1_first"),
    ("vllm", "vllm_v1"),
    ("sglang", "sglang_0_4"),
    ("sglang", "sglang_0_5"),
    ("tensorrt_llm", "tensorrt_llm"),
    ("triton", "triton"),
    ("triton", "triton_tensorrt_llm"),
    ("triton", "triton_vllm"),
    ("tgi", "tgi"),
    ("kserve", "kserve"),
)
every_page = pytest.mark.parametrize(("kind", "page"), PAGES, ids=[page for _, page in PAGES])


def told(kind: str, page: str) -> list[Sample]:
    """Return what a recorded page says, and see to it that nothing of it was lost."""
    lost: Counter[str] = Counter()
    samples = Normaliser(BY_KIND[kind], {}, lost).samples(recorded(page), NOW)
    assert set(lost) <= {"not_a_number"}
    return samples


def values(samples: list[Sample], metric: str, *keys: str) -> dict[tuple[object, ...], float]:
    """Return a metric's values by some of its attributes."""
    return {
        tuple(sample.attributes.get(key) for key in keys): sample.value
        for sample in samples
        if sample.metric == metric
    }


def single(samples: list[Sample], metric: str) -> Sample:
    """Return the only series of a metric."""
    (sample,) = [one for one in samples if one.metric == metric]
    return sample


@every_page
def test_samples_fit_the_catalogue(kind: str, page: str) -> None:
    """Whatever a page says has attributes of the catalogue and a finite value, and is said once."""
    samples = told(kind, page)
    assert samples
    for sample in samples:
        assert set(sample.attributes) <= set(BY_NAME[sample.metric].attributes)
        assert math.isfinite(sample.value)
        if BY_NAME[sample.metric].kind is Kind.HISTOGRAM:
            assert sample.explicit is not None
            assert sum(sample.explicit.counts) == sample.value
    identities = [(one.metric, *sorted(one.attributes.items())) for one in samples]
    assert len(identities) == len(set(identities))


def test_vllm_v0() -> None:
    """The first engine's names: swapped requests, a hit rate, a time per token for each token."""
    samples = told("vllm", "vllm_v0")
    levels = {table.RUNNING: 3, table.WAITING: 7, table.SWAPPED: 1, table.KV_CACHE: 0.93}
    counts = {table.PREEMPTIONS: 13, table.PROMPT_TOKENS: 10007, table.GENERATION_TOKENS: 5003}
    for metric, value in (levels | counts | {table.CACHE_HIT_RATIO: 0.41}).items():
        assert values(samples, metric, GEN_AI_MODEL) == {("acme/chat-8b",): value}
    assert values(samples, table.FINISHED, FINISH_REASON) == {("stop",): 89, ("length",): 12}
    first = single(samples, table.TTFT)
    assert first.explicit is not None
    assert (first.value, first.explicit.sum) == (101, 41.5)
    assert dict(zip(first.explicit.bounds, first.explicit.counts, strict=False))[0.1] == 50
    assert single(samples, table.TPOT).value == single(samples, table.INTER_TOKEN).value == 4902
    assert single(samples, table.DURATION).explicit.bounds[0] == 1.0  # type: ignore[union-attr]
    assert single(samples, table.QUEUE_TIME).value == 101


def test_vllm_with_old_and_new_names() -> None:
    """Where both names of one thing are on a page, it counts once."""
    samples = told("vllm", "vllm_v1_first")
    assert single(samples, table.KV_CACHE).value == 0.5
    assert single(samples, table.CACHE_QUERIES).value == 1009
    assert single(samples, table.CACHE_HITS).value == 503
    assert single(samples, table.TPOT).value == 3997


def test_vllm_v1() -> None:
    """Each engine has its own series; the time per token is a request's where vLLM measures that."""
    samples = told("vllm", "vllm_v1")
    assert values(samples, table.RUNNING, SERVER_ENGINE) == {("0",): 5, ("1",): 6}
    assert values(samples, table.KV_CACHE, SERVER_ENGINE) == {("0",): 0.5, ("1",): 0.75}
    assert set(values(samples, table.TPOT, SERVER_ENGINE).values()) == {44}
    assert set(values(samples, table.INTER_TOKEN, SERVER_ENGINE).values()) == {3997}
    assert set(values(samples, table.ITERATION_TOKENS, SERVER_ENGINE).values()) == {1000}
    phases = (table.QUEUE_TIME, table.PREFILL_TIME, table.DECODE_TIME, table.INFERENCE_TIME)
    assert {len(values(samples, phase, SERVER_ENGINE)) for phase in phases} == {2}
    finished = values(samples, table.FINISHED, SERVER_ENGINE, FINISH_REASON)
    assert finished["1", "abort"] == 2


def test_vllm_start_times() -> None:
    """A series began when it says so (`_created`)."""
    samples = told("vllm", "vllm_v1")
    starts = {s.start_unix_ns for s in samples if BY_NAME[s.metric].kind is Kind.COUNTER}
    assert starts == {1_796_000_000_250_000_000}


def test_start_time_of_the_process() -> None:
    """Without `_created` a counter began with the server's process, and without that at an unknown time."""
    text = "process_start_time_seconds 1796000000.5\nvllm:prompt_tokens_total 3\n"
    (sample,) = Normaliser(BY_KIND["vllm"], {}, Counter()).samples(text, NOW)
    assert sample.start_unix_ns == 1_796_000_000_500_000_000
    (sample,) = Normaliser(BY_KIND["vllm"], {}, Counter()).samples(text.split("\n")[1], NOW)
    assert sample.start_unix_ns == 0


def test_sglang_0_4() -> None:
    """Numbers in scientific notation are read, and a hit rate stays one."""
    samples = told("sglang", "sglang_0_4")
    assert single(samples, table.PROMPT_TOKENS).value == 8_128_902
    assert single(samples, table.CACHE_HIT_RATIO).value == 0.0075
    assert single(samples, table.TTFT).value == 3008
    assert single(samples, table.WAITING).value == 2826


def test_sglang_0_5() -> None:
    """Ranks of one engine tell the same requests, which count once; cached tokens of all sources are added."""
    samples = told("sglang", "sglang_0_5")
    assert single(samples, table.RUNNING).value == 9
    assert single(samples, table.KV_CACHE).value == 0.875
    assert single(samples, table.PREEMPTIONS).value == 23
    assert single(samples, table.CACHE_HITS).value == 7003
    assert single(samples, table.CACHE_QUERIES).value == 20011
    assert single(samples, table.FINISHED).value == 79
    assert single(samples, table.QUEUE_TIME).explicit.bounds[0] == 0.0  # type: ignore[union-attr]


def test_tensorrt_llm() -> None:
    """Its cache counts blocks, reused and missed; requests that failed are a reason of their own."""
    samples = told("tensorrt_llm", "tensorrt_llm")
    assert single(samples, table.CACHE_QUERIES).value == 803
    assert single(samples, table.CACHE_HITS).value == 301
    assert single(samples, table.KV_CACHE).value == 0.62
    finished = {("stop",): 150, ("length",): 5, ("error",): 3}
    assert values(samples, table.FINISHED, FINISH_REASON) == finished
    assert single(samples, table.TPOT).value == 155


def test_triton() -> None:
    """Sums of microseconds are seconds by phase, summaries quantiles; one that has no value yet is missing."""
    samples = told("triton", "triton")
    spent = values(samples, table.PHASE_TIME, GEN_AI_MODEL, SERVER_PHASE)
    assert spent["bert", "queue"] == pytest.approx(0.01111)
    assert spent["resnet", "compute"] == pytest.approx(1.4)
    quantiles = values(samples, table.PHASE_QUANTILE, SERVER_QUANTILE)
    assert quantiles["0.99",] == pytest.approx(101e-6)
    assert ("0.999",) not in quantiles
    finished = values(samples, table.FINISHED, GEN_AI_MODEL, FINISH_REASON)
    assert finished["resnet", "success"] == 162
    assert finished["bert", "REJECTED"] == 1
    first = single(samples, table.FIRST_RESPONSE_TIME)
    assert first.explicit is not None
    assert first.explicit.bounds == (0.1, 0.5, 2.0, 5.0)
    assert first.explicit.sum == 21


def test_triton_with_tensorrt_llm() -> None:
    """The batcher's requests and cache are told by their labels; waiting is before and in the batcher."""
    samples = told("triton", "triton_tensorrt_llm")
    assert single(samples, table.RUNNING).value == 8
    assert single(samples, table.WAITING).value == 4 + 3
    assert single(samples, table.KV_CACHE).value == 0.6


def test_triton_with_vllm() -> None:
    """On Triton's page vLLM's names count, with Triton's label of the model."""
    samples = told("triton", "triton_vllm")
    assert values(samples, table.TTFT, GEN_AI_MODEL) == {("vllm_model",): 1}
    assert values(samples, table.PROMPT_TOKENS, GEN_AI_MODEL) == {("vllm_model",): 10}


def test_tgi() -> None:
    """Tokens are sums of its histograms; its time per token, which has the prefill in it, is not used."""
    samples = told("tgi", "tgi")
    assert single(samples, table.DURATION).value == 148
    assert single(samples, table.GENERATION_TOKENS).value == 9001
    assert single(samples, table.PROMPT_TOKENS).value == 30030
    finished = {("success",): 148, ("validation",): 1, ("overloaded",): 1}
    assert values(samples, table.FINISHED, FINISH_REASON) == finished
    assert not values(samples, table.TPOT)
    assert not values(samples, table.TTFT)


def test_kserve() -> None:
    """A model server's prediction is its inference."""
    sample = single(told("kserve", "kserve"), table.INFERENCE_TIME)
    assert (sample.value, sample.attributes[GEN_AI_MODEL]) == (67, "sklearn-iris")


def test_absent_is_missing() -> None:
    """What a page does not have is not said to be 0."""
    samples = told("tgi", "tgi")
    assert not values(samples, table.KV_CACHE)
    assert not values(samples, table.PREEMPTIONS)


@pytest.mark.parametrize("server", SERVERS, ids=[one.name for one in SERVERS])
def test_tables_name_metrics_of_the_catalogue(server: Server) -> None:
    """A row's metric is in the catalogue, and what it adds are attributes of that metric."""
    for row in server.rows:
        added = {key for key, _ in row.attributes} | {key for _, key in row.labels}
        assert added <= set(BY_NAME[row.metric].attributes)
        assert row.names
