"""The main job end to end, through the real command: real load, real faults, and nothing left behind."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detector.cli.demo import preflight
from tests.support.demo_run import DemoRun

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

BUDGET_S = 100.0
needs_cgroups = pytest.mark.skipif(
    preflight.no_cgroups_because() is not None, reason="needs root: a cgroup with a CPU limit"
)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[DemoRun]:
    """Return a demo to start; it is ended with the test."""
    run = DemoRun(tmp_path)
    yield run
    run.end()


def _finish(demo: DemoRun, *arguments: str) -> dict[str, Any]:
    """Run to the end; return the JSON result with the exit code of the process."""
    code = demo.start("--json", *arguments).wait(200)
    result: dict[str, Any] = json.loads(demo.out)
    assert result["exit_code"] == code, demo.err
    return result


def _in_baseline(demo: DemoRun) -> bool:
    return "load" in demo.record().get("pids", {})


def _failed_checks(result: dict[str, Any]) -> list[Any]:
    assert "judgement" in result, result
    return [check for check in result["judgement"]["checks"] if not check["ok"]]


@pytest.mark.privileged
@needs_cgroups
def test_a_cpu_limit_set_too_low_is_found_and_proven(demo: DemoRun) -> None:
    """Right cgroup and throttled seconds, past a decoy deploy and a throttled bystander, in time."""
    result = _finish(demo, "--fault", "cpu-quota", "--seed", "11")

    assert _failed_checks(result) == []
    assert result["exit_code"] == 0
    assert result["elapsed_s"] <= BUDGET_S
    assert Path(result["html"]).read_text().startswith("<!doctype html>")
    assert demo.left_behind(5) == []


def test_a_slower_revision_is_found_and_named(demo: DemoRun) -> None:
    """The revision that was deployed leads the causes, in time."""
    result = _finish(demo, "--fault", "bad-deploy", "--seed", "12")

    assert _failed_checks(result) == []
    assert result["exit_code"] == 0
    assert result["elapsed_s"] <= BUDGET_S
    assert demo.left_behind(5) == []


def test_killing_the_demo_leaves_nothing(demo: DemoRun) -> None:
    """No process, cgroup or port, with an injector in the middle of its work."""
    process = demo.start("--fault", "none", "--seed", "13")
    demo.wait_until(lambda: bool(list((demo.run_dir / "truth").glob("*.json"))), 120)

    process.kill()
    process.wait()

    assert demo.left_behind(10) == []


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_within_seconds(demo: DemoRun, signum: signal.Signals) -> None:
    """With the exit code a shell expects, and nothing left."""
    process = demo.start("--fault", "none", "--seed", "14")
    demo.wait_until(lambda: _in_baseline(demo), 60)

    process.send_signal(signum)

    assert process.wait(8) == 128 + signum
    assert demo.left_behind(2) == []


@pytest.mark.parametrize("part", ["agent", "detector", "workload", "load"])
def test_the_death_of_a_part_is_one_clear_line(demo: DemoRun, part: str) -> None:
    """It names the part and its log, and the others are stopped."""
    process = demo.start("--fault", "none", "--seed", "15")
    demo.wait_until(lambda: _in_baseline(demo), 60)

    os.kill(demo.record()["pids"][part], signal.SIGKILL)

    assert process.wait(10) == 1
    assert f"tailcause demo: the {part} was killed by SIGKILL" in demo.err.splitlines()[-1]
    assert demo.left_behind(5) == []


def test_the_second_signal_does_not_wait(demo: DemoRun) -> None:
    """A user who insists is obeyed, and the reapers clean up."""
    process = demo.start("--fault", "none", "--seed", "16")
    demo.wait_until(lambda: _in_baseline(demo), 60)

    process.send_signal(signal.SIGINT)
    demo.wait_until(lambda: "stopping everything" in demo.err, 5)
    process.send_signal(signal.SIGINT)

    try:
        assert process.wait(3) == 130
    except subprocess.TimeoutExpired:
        pytest.fail("still there after the second signal")
    assert demo.left_behind(10) == []
