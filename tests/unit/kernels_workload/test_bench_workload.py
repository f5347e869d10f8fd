"""What `make bench-workload` sends, and what it makes of the answers."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.bench.agent_process import FailedError
from tests.bench.paired import Estimate
from tests.bench.rows import Row
from tests.bench.workload_client import Reply, Run, at_once, at_rate
from tests.bench.workload_figures import AZURE_CODE, AZURE_CONVERSATION, Lengths, Table
from tests.bench.workload_plot import svg
from tests.bench.workload_traces import Asked, Scale, azure, known_share, mooncake
from tests.support.workload_process import serving


def mean_of(table: Table) -> float:
    """Return the mean of what a table draws."""
    levels = [(step + 0.5) / 10_000 for step in range(10_000)]
    return sum(map(table.at, levels)) / len(levels)


@pytest.mark.parametrize(
    ("trace", "prompt", "answer"), [(AZURE_CONVERSATION, 1154.7, 211.1), (AZURE_CODE, 2047.8, 27.9)]
)
def test_tables_have_the_means_of_the_traces(trace: Lengths, prompt: float, answer: float) -> None:
    """What is drawn is as long on average as what the tables were computed from: no tail is made longer."""
    assert mean_of(trace.prompts) == pytest.approx(prompt, rel=0.04)
    assert mean_of(trace.answers) == pytest.approx(answer, rel=0.04)


def test_conversations_share_what_those_of_the_trace_share() -> None:
    """A cache of any size would find the share of blocks that it finds in the trace: 36.6 %."""
    shares = [known_share(mooncake(Scale(32, 32, 1024), 1000, seed)) for seed in range(5)]
    assert sum(shares) / len(shares) == pytest.approx(0.366, abs=0.03)


def test_requests_of_the_azure_traces_share_nothing() -> None:
    """No cache helps one of the policies."""
    assert known_share(azure(AZURE_CONVERSATION, Scale(8, 4, 1024), 200)) == 0


def test_everything_fits_into_the_context() -> None:
    """The longest prompts are cut, so that no request is refused; the token before a prompt counts."""
    asked = azure(AZURE_CODE, Scale(2, 4, 256), 300) + mooncake(Scale(32, 8, 256), 300)
    longest = max(len(one.prompt) + 1 + one.max_tokens for one in asked)
    assert longest == 256


def test_equal_seeds_send_equal_requests() -> None:
    """Both sides of a comparison get the same, and other rounds something else."""
    scale = Scale(32, 32, 1024)
    assert mooncake(scale, 50, 3) == mooncake(scale, 50, 3)
    assert mooncake(scale, 50, 3) != mooncake(scale, 50, 4)


def test_a_queue_is_what_is_under_way_when_the_last_one_departs() -> None:
    """By this a rate is called sustained or not."""
    ends = (4.0, 1.5, 9.0, 3.0)
    run = Run([Reply("", at, (end,)) for at, end in enumerate(ends)])
    assert run.left_at_the_end == 2
    assert run.took_s == 9.0


def test_throughput_at_saturation_stops_where_work_runs_short() -> None:
    """Of three requests on two rows, the second end is the last moment at which both rows had work."""
    run = Run([Reply("", 0.0, (1.0, 2.0)), Reply("", 0.0, (1.0, 4.0)), Reply("", 0.0, (3.0, 9.0))])
    assert run.saturated(rows=2) == 5 / 4
    assert run.saturated(rows=3) == 3 / 2


def test_a_budget_from_below_is_missed_below_it() -> None:
    """More is better there."""
    rows = [Row("x", "x", "", Estimate(v, v, v), at_least=2.5) for v in (2.4, 2.5, float("nan"))]
    assert [row.missed for row in rows] == [True, False, True]


def test_the_plot_has_a_line_per_run() -> None:
    """It is well-formed, names are escaped, and a run without answers has no line."""
    root = ET.fromstring(  # noqa: S314 - our own text
        svg("a < b", {"x & y": [0.1, 0.2], "z": [3.0], "none": []})
    )
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert tags.count("polyline") == 2
    assert {"a < b", "x & y", "z"} <= set(texts)


def test_clients_read_whole_answers_of_a_real_server(tmp_path: Path) -> None:
    """At once and at a rate the texts are the same, in the order of the requests; a refusal is an error."""
    asked = [Asked(float(at), f"prompt {at}", 1 + at) for at in range(4)]
    with serving(tmp_path, "prompt_cache=0") as server:
        runs = [at_once(server.url, asked), at_rate(server.url, asked, 200)]
        with pytest.raises(FailedError, match="answered 400"):
            at_once(server.url, [Asked(0.0, "x" * 600, 1)])
    first, second = ([reply.text for reply in run.replies] for run in runs)
    assert first == second
    assert [len(reply.pieces_s) for reply in runs[0].replies] == [1, 2, 3, 4]
    assert all(0 < reply.first_s <= reply.total_s for run in runs for reply in run.replies)
