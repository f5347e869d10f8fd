"""The rendered reports stay as they were approved; `UPDATE_GOLDENS=1 pytest tests/golden` rewrites them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from detector.model import Report
from detector.report import canonical, html, markdown, terminal

GOLDENS = Path(__file__).parent / "reports"
NAMES = ("throttled", "bad-deploy", "demand", "inconclusive")
RENDERERS: dict[str, Callable[[Report], str]] = {
    "100.txt": lambda report: terminal.render(report, 100, color=False),
    "80.txt": lambda report: terminal.render(report, 80, color=False),
    "ansi": lambda report: terminal.render(report, 100, color=True),
    "html": html.render,
    "md": markdown.render,
    "json": lambda report: canonical.dumps(report).decode() + "\n",
}


@pytest.mark.parametrize("suffix", RENDERERS)
@pytest.mark.parametrize("name", NAMES)
def test_report_matches_its_golden_file(name: str, suffix: str, samples: dict[str, Report]) -> None:
    """Each renderer gives the approved text for each sample."""
    golden = GOLDENS / f"{name}.{suffix}"
    actual = RENDERERS[suffix](samples[name])
    if os.environ.get("UPDATE_GOLDENS") == "1":
        golden.write_text(actual, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == actual


def test_every_golden_file_belongs_to_a_sample() -> None:
    """No golden file is left behind by a sample that is gone."""
    expected = {f"{name}.{suffix}" for name in NAMES for suffix in RENDERERS}
    assert set() == {path.name for path in GOLDENS.iterdir()} - expected
