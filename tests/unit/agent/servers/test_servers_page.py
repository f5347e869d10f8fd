"""The text of a page is read as the format has it, and nothing in it does harm."""

import math
import time
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from agent.otlp.codec import encode_samples
from agent.servers import table
from agent.servers.grouping import MAX_MODELS
from agent.servers.normalise import Normaliser
from agent.servers.page import Histogram, LabelBook, Labels, histograms, read
from agent.servers.vllm import VLLM
from agent.telemetry.keys import GEN_AI_MODEL
from tests.support.page_server import recorded

NOW = 1_796_100_000_000_000_000


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("x 3", "", 3.0),
        ("x{} 3", "", 3.0),
        ('x{a="b"} 3', 'a="b"', 3.0),
        ('x{a="b",} 3 1796100000000', 'a="b",', 3.0),
        ('x{a="b"} +Inf', 'a="b"', float("inf")),
        ('x{a="b"} 3 # {trace_id="c"} 0.5 1.5', 'a="b"', 3.0),
        ('x{a="b}c"} 3', 'a="b}c"', 3.0),
        (r'x{a="say \"#1\"} 2"} 3', r'a="say \"#1\"} 2"', 3.0),
        ('x{a="b"}\t3\r', 'a="b"', 3.0),
    ],
)
def test_lines(line: str, labels: str, value: float) -> None:
    """Every form of a line that the format allows has its labels and value."""
    page = read(f"# TYPE x untyped\n{line}\n", {"x"})
    assert page.series == {"x": {labels: value}}
    assert not page.lost


@pytest.mark.parametrize("line", ["x", "x{", "x{a=b} 3", 'x{a="b} 3', 'x{a="b"} three', 'x{a="b"}'])
def test_malformed_lines(line: str) -> None:
    """A line that cannot be read is left out, and the others are read."""
    page = read(f'{line}\nx{{z="1"}} 2\n', {"x"})
    assert page.series["x"] == {'z="1"': 2.0}
    assert sum(page.lost.values()) <= 1


def test_what_is_not_wanted() -> None:
    """Other names, comments and blank lines cost nothing and are no loss."""
    page = read('# HELP x {"a"}\n\ny{a="b"} 1\n# EOF\n', {"x"})
    assert page.series == {"x": {}}
    assert not page.lost


def test_duplicates_and_nan() -> None:
    """Of two equal series the first counts, a NaN is no value; both are counted as lost."""
    page = read('x{a="1"} 1\nx{a="1"} 2\nx{a="2"} NaN\n', {"x"})
    assert page.series["x"] == {'a="1"': 1.0}
    assert page.lost == {"duplicate_series": 1, "not_a_number": 1}


def test_escapes() -> None:
    """A label's value is what was meant."""
    labels, bound = LabelBook()[r'le="0.5",model_name="a\"b\\c\nd"']
    assert (labels, bound) == ((("model_name", 'a"b\\c\nd'),), 0.5)


HISTOGRAM = """h_bucket{le="1"} 2
h_bucket{le="0.5"} 1
h_bucket{le="+Inf"} 5
h_sum 4.5
h_count 5
"""


def _read(text: str) -> tuple[dict[Labels, Histogram], Counter[str]]:
    page = read(text, {"h_bucket", "h_sum", "h_count", "h_created"})
    return histograms(page, "h", LabelBook()), page.lost


def test_histogram_in_any_order() -> None:
    """Buckets are sorted by their bounds, wherever they stand."""
    found, lost = _read(HISTOGRAM)
    (one,) = found.values()
    assert (one.bounds, one.counts, one.sum) == ((0.5, 1.0), (1, 2, 5), 4.5)
    assert not lost


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('le="1"} 2', 'le="1"} 0'),  # falls under the bucket below
        ('h_bucket{le="+Inf"} 5\n', 'h_bucket{le="+Inf"} +Inf\n'),
        ("h_sum 4.5\n", ""),
        ('le="0.5"} 1', 'le="0.5"} -1'),
        ('le="0.5"} 1', 'le="0.5"} 0.5'),
        ("} 5\n", "} 1e300\n"),
        ("h_sum 4.5", "h_sum -Inf"),
        ('le="0.5"', 'le="wide"'),
        ('le="0.5"', 'lf="0.5"'),
    ],
)
def test_histogram_that_contradicts_itself(old: str, new: str) -> None:
    """A histogram that cannot be right is left out and counted."""
    assert old in HISTOGRAM
    found, lost = _read(HISTOGRAM.replace(old, new))
    assert not found or all(one.counts == (2, 5) for one in found.values())
    assert lost["malformed_histogram"] == 1


def test_histogram_without_inf_bucket() -> None:
    """The count stands in for a bucket without a bound that is missing."""
    found, lost = _read(HISTOGRAM.replace('h_bucket{le="+Inf"} 5\n', ""))
    (one,) = found.values()
    assert list(one.counts) == [1, 2, 5]
    assert not lost


def test_gauges_out_of_range() -> None:
    """Infinite and negative levels are no values."""
    lost: Counter[str] = Counter()
    text = "vllm:num_requests_running +Inf\nvllm:num_requests_waiting -1\n"
    assert not Normaliser(VLLM, {}, lost).samples(text, NOW)
    assert lost == {"out_of_range": 2}


_NAMES = st.sampled_from(
    sorted(name for name in VLLM.wanted if "first_token" in name or "prompt" in name)
)
_LABELS = st.one_of(
    st.sampled_from(["", "{}", '{le="1"}', '{le="0.5"}', '{le="+Inf"}', '{le="NaN"}', '{le="-1"}']),
    st.text(max_size=8),
)
_VALUES = st.one_of(
    st.floats().map(str), st.integers(-2, 9).map(str), st.text(max_size=4), st.just("1e300")
)
_LINES = st.builds("{}{} {}\n".format, _NAMES, _LABELS, _VALUES)


@settings(deadline=None)
@given(st.lists(st.lists(_LINES, max_size=12), max_size=3))
def test_any_pages(pages: list[list[str]]) -> None:
    """Whatever the pages of a server hold, what comes of them are finite numbers, none below 0."""
    reader = Normaliser(VLLM, {}, Counter())
    for turn, lines in enumerate(pages):
        samples = reader.samples("".join(lines), NOW + turn)
        assert encode_samples(samples, {})
        for sample in samples:
            assert math.isfinite(sample.value)
            assert sample.value >= 0
            if sample.explicit is not None:
                assert min(sample.explicit.counts) >= 0
                assert sum(sample.explicit.counts) == sample.value
                assert math.isfinite(sample.explicit.sum)


def test_models_are_bounded() -> None:
    """Of too many models the first are told, the same ones at every reading; the others are counted."""
    names = [f"m{i}" for i in range(MAX_MODELS + 3)]
    lines = [f'vllm:num_requests_running{{model_name="{name}"}} 1' for name in names]
    lost: Counter[str] = Counter()
    reader = Normaliser(VLLM, {}, lost)
    first = {s.attributes[GEN_AI_MODEL] for s in reader.samples("\n".join(lines), NOW)}
    assert first == set(names[:MAX_MODELS])
    assert lost == {"too_many_models": 3}
    again = reader.samples("\n".join(reversed(lines)), NOW + 1)
    assert {s.attributes[GEN_AI_MODEL] for s in again} == first
    fewer = reader.samples("\n".join(lines[5:]), NOW + 2)
    assert {s.attributes[GEN_AI_MODEL] for s in fewer} >= set(names[5:MAX_MODELS])
    later = reader.samples("\n".join(lines[5:]), NOW + 3)
    assert {s.attributes[GEN_AI_MODEL] for s in later} == set(names[5:])


def test_series_are_bounded() -> None:
    """Labels without end do not make series without end."""
    lines = [f'vllm:request_success_total{{finished_reason="{i}"}} 1' for i in range(1500)]
    lost: Counter[str] = Counter()
    reader = Normaliser(VLLM, {}, lost)
    assert len(reader.samples("\n".join(lines), NOW)) == 1000
    assert lost == {"too_many_series": 500}


def test_series_that_come_and_go_are_forgotten() -> None:
    """What is remembered of series stays bounded when every page has other ones."""
    reader = Normaliser(VLLM, {}, Counter())
    for turn in range(5):
        lines = [
            f'vllm:request_success_total{{finished_reason="{turn}-{i}"}} 1' for i in range(900)
        ]
        reader.samples("\n".join(lines), NOW + turn)
    assert len(reader._cumulative) <= 3000


def test_cost() -> None:
    """A page of a megabyte costs a fraction of what the usual parser takes for it."""
    text = "\n".join(recorded("vllm_v1").replace('engine="0"', f'engine="{i}"') for i in range(22))
    assert len(text) > 1_000_000
    reader = Normaliser(VLLM, {}, Counter())
    reader.samples(text, NOW)
    ours = min(_cpu_s(reader.samples, text, NOW + turn) for turn in range(1, 4))
    theirs = _cpu_s(lambda: list(text_string_to_metric_families(text)))
    assert ours < theirs / 4


def _cpu_s(call: Callable[..., object], *arguments: object) -> float:
    begun_s = time.thread_time()
    call(*arguments)
    return time.thread_time() - begun_s


def test_unlabelled_pages() -> None:
    """A server that names no model has no attribute of one."""
    (sample,) = Normaliser(VLLM, {}, Counter()).samples("vllm:num_requests_running 2\n", NOW)
    assert (sample.metric, dict(sample.attributes)) == (table.RUNNING, {})
