"""Xids: each event counted once, by number, whoever tells of it."""

import os
import time
from functools import partial
from pathlib import Path

import pytest

from agent.gpu.events import XidLines
from agent.gpu.xid import PAIRING_S, Xid, XidBook, severity
from kernels.fakenvml import h100, scenarios
from tests.unit.agent.gpu.conftest import Round, Stage, collect, until

GPU = h100.gpu_uuid(0)
PCI = "0000:19:00"


def report(source: str, at_s: float, code: int = 79, pci: str = PCI) -> Xid:
    """Return what one source tells."""
    return Xid(pci, code, source, at_s)


def counts(*reports: Xid) -> dict[tuple[str, int], int]:
    """Return what a book counts."""
    book = XidBook()
    for one in reports:
        book.add(one)
    return {(pci, code): count for pci, code, count in book.counts()}


def last(found: Round) -> dict[object, float]:
    """Return the last Xid of each GPU."""
    return {
        s.attributes["hw.id"]: s.value
        for s in found.samples
        if s.metric == "tailcause.gpu.xid.last"
    }


@pytest.mark.parametrize("order", [("nvml", "kernel"), ("kernel", "nvml")])
def test_both_sources_are_one_event(order: tuple[str, str]) -> None:
    """Whichever tells first, the other one's report is the same event."""
    assert counts(report(order[0], 5.0), report(order[1], 6.5)) == {(PCI, 79): 1}


def test_identical_xid_counts_again() -> None:
    """The second of two equal Xids counts, from one source and from both in any order."""
    twice = [report("nvml", 1.0), report("nvml", 1.1)]
    lines = [report("kernel", 1.0), report("kernel", 1.1)]
    assert counts(*twice) == {(PCI, 79): 2}
    assert counts(*twice, *lines) == {(PCI, 79): 2}
    assert counts(twice[0], lines[0], twice[1], lines[1]) == {(PCI, 79): 2}
    assert counts(*lines, *twice) == {(PCI, 79): 2}


def test_source_that_misses_one() -> None:
    """An event that one source misses is counted all the same, and does not swallow a later one."""
    both = [report("nvml", 1.0), report("kernel", 1.0)]
    missed = report("kernel", 30.0)
    later = [report("nvml", 200.0), report("kernel", 200.0)]
    assert counts(*both, missed) == {(PCI, 79): 2}
    assert counts(*both, missed, *later) == {(PCI, 79): 3}


def test_reports_far_apart_are_two_events() -> None:
    """What lies further apart than the pairing time is another event."""
    assert counts(report("nvml", 1.0), report("kernel", 2.0 + PAIRING_S)) == {(PCI, 79): 2}


def test_other_number_or_gpu_is_no_partner() -> None:
    """Only the same number on the same GPU is the same event."""
    other = "0000:29:00"
    found = counts(report("nvml", 1.0), report("kernel", 1.0, 48), report("kernel", 1.0, 79, other))
    assert found == {(PCI, 79): 1, (PCI, 48): 1, (other, 79): 1}


def test_lines_of_one_exception() -> None:
    """The driver's lines for the units of one exception are one event; a later one is another."""
    burst = [report("kernel", 1.0 + n / 10_000, 13) for n in range(5)]
    assert counts(*burst) == {(PCI, 13): 1}
    assert counts(*burst, report("kernel", 2.0, 13)) == {(PCI, 13): 2}


def test_numbers_are_bounded() -> None:
    """A flood of different numbers is bounded, and what is left out counted."""
    book = XidBook()
    for code in range(300):
        book.add(report("kernel", 1.0, code))
    assert len(list(book.counts())) == 256
    assert book.overflow == 44


@pytest.mark.parametrize(
    ("code", "expected"), [(13, "application"), (63, "notice"), (79, "fatal"), (999, "unknown")]
)
def test_severity(code: int, expected: str) -> None:
    """A number tells what is to be done about it."""
    assert severity(code) == expected


def test_nvml_event_twice(stage: Stage) -> None:
    """The same Xid twice counts 2, on its GPU, with its severity; it is also the last one."""
    scenario = stage.play(scenarios.healthy(2))
    gpus = stage.collector()
    collect(gpus)
    stage.play(scenario.with_xid(0, 94).with_xid(0, 94).with_xid(1, 79))
    expected = {(GPU, "xid_94"): 2, (h100.gpu_uuid(1), "xid_79"): 1}
    found = until(gpus, lambda one: one.xids() == expected)
    grave = {
        s.attributes["error.type"]: s.attributes["tailcause.gpu.xid.severity"]
        for s in found.samples
        if "tailcause.gpu.xid.severity" in s.attributes
    }
    assert grave == {"xid_94": "application", "xid_79": "fatal"}
    assert last(found) == {GPU: 94, h100.gpu_uuid(1): 79}


def _paired(book: XidBook, _: Round) -> bool:
    """Tell whether NVML's report has found its partner in the log."""
    return not book._unpaired[PCI, 79, "kernel"]


def test_both_sources_through_the_collector(stage: Stage, tmp_path: Path) -> None:
    """What NVML and the kernel's log both tell counts once; told by both a second time it counts 2."""
    log = tmp_path / "kmsg"
    log.touch()
    scenario = stage.play(scenarios.healthy(1))
    gpus = stage.collector()
    gpus._lines = XidLines(gpus._book, log)
    collect(gpus)
    for number in (1, 2):
        now_us = int(time.monotonic() * 1e6)
        with log.open("a") as out:
            out.write(f"4,{number},{now_us},-;NVRM: Xid (PCI:0000:19:00): 79, pid=12, bus\n")
        assert collect(gpus).xids() == {(GPU, "xid_79"): number}
        scenario = stage.play(scenario.with_xid(0, 79))
        until(gpus, partial(_paired, gpus._book))
        assert collect(gpus).xids() == {(GPU, "xid_79"): number}


def test_events_survive_a_reload(stage: Stage) -> None:
    """Counts go on after a reload of the driver, and new events are heard."""
    scenario = stage.play(scenarios.healthy(1))
    gpus = stage.collector()
    collect(gpus)
    scenario = stage.play(scenario.with_xid(0, 43))
    until(gpus, lambda one: one.xids() == {(GPU, "xid_43"): 1})
    scenario = stage.play(scenario.reloaded())
    until(gpus, lambda one: bool(one.states()))
    stage.play(scenario.with_xid(0, 43))
    until(gpus, lambda one: one.xids() == {(GPU, "xid_43"): 2})


def test_line_of_an_unknown_gpu_is_told_by_its_address(stage: Stage, tmp_path: Path) -> None:
    """A GPU that fell off before the agent started has no UUID; its Xid in the log still counts, once."""
    log = tmp_path / "kmsg"
    log.touch()
    stage.play(scenarios.no_driver())
    gpus = stage.collector()
    gpus._lines = XidLines(gpus._book, log)
    collect(gpus)
    with log.open("a") as out:
        out.write(
            "4,1,5000000,-;NVRM: Xid (PCI:0000:c1:00): 79, pid=12, GPU has fallen off the bus.\n"
        )
    assert collect(gpus).xids() == {("PCI:0000:c1:00", "xid_79"): 1}
    assert collect(gpus).xids() == {("PCI:0000:c1:00", "xid_79"): 1}


def test_log_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the right to read the log there is no failure, but a reason."""

    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    lines = XidLines(XidBook())
    lines.read()
    assert lines.reason == "/dev/kmsg cannot be read: Operation not permitted"
    assert lines.overruns == 0
