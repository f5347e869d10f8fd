"""The page of all metrics is the catalogue's, and the catalogue says enough to write it.

UPDATE_GOLDENS=1 writes the page anew, as `tailcause-agent signals --markdown > agent/METRICS.md` does.
"""

import os
import re
from pathlib import Path

import pytest

from agent.cli_signals import groups, row_of
from agent.telemetry.document import markdown
from agent.telemetry.metric import Kind, Metric
from agent.telemetry.names import METRICS

PAGE = Path(__file__).parents[2] / "agent" / "METRICS.md"
by_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


def test_page_is_up_to_date() -> None:
    """A metric that was added or changed is on the page."""
    page = markdown(groups(), [row_of(metric) for metric in METRICS])
    if os.environ.get("UPDATE_GOLDENS") == "1":
        PAGE.write_text(page)
    assert page == PAGE.read_text()


def test_every_metric_is_on_the_page_once() -> None:
    """No metric falls between the sections."""
    names = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(names) == sorted(metric.name for metric in METRICS)


def test_every_line_is_a_whole_row() -> None:
    """What is written in a description does not break the table."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {7}


@by_metric
def test_metric_is_described(metric: Metric) -> None:
    """It has a sentence, a unit, and attributes in dotted lower case."""
    assert re.fullmatch(r"[A-Z0-9].{10,}\.", metric.description)
    assert re.fullmatch(r"1|\{[a-z_]+\}|[A-Za-z]+(/[A-Za-z{}]+)?", metric.unit)
    assert metric.kind in set(Kind)
    assert len(set(metric.attributes)) == len(metric.attributes)
    for key in metric.attributes:
        assert re.fullmatch(r"[a-z][a-z0-9_.]*", key)
