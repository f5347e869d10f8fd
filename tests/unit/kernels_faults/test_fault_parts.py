"""The parts of the faults that need no workload."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.errors import WorkloadError
from kernels.faults.bad_deploy import VARIANTS
from kernels.faults.base import FaultKind, Injection, interpolate
from kernels.faults.registry import FAULTS
from kernels.faults.releases import bump, new_revision
from kernels.faults.truth import truth_of, write_truth
from kernels.supervisor.replica import Release, ServeConfig
from kernels.supervisor.state import control_socket, read_state
from kernels.workload.settings import parse


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run `tailcause-workload fault`."""
    return subprocess.run(
        [sys.executable, "-m", "kernels.cli", "fault", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("version", "part", "expected"),
    [
        ("1.2.3", 0, "2.0.0"),
        ("1.2.3", 1, "1.3.0"),
        ("1.2.3", 2, "1.2.4"),
        ("7", 1, "7.1"),
        ("1.x", 1, "1.1"),
    ],
)
def test_versions_rise_like_real_ones(version: str, part: int, expected: str) -> None:
    """Parts behind the raised one start again."""
    assert bump(version, part) == expected


def test_revisions_are_git_hashes_by_the_seed() -> None:
    """Forty hex digits, the same for the same seed."""
    first, again, other = (new_revision(random.Random(seed)) for seed in (1, 1, 2))

    assert re.fullmatch("[0-9a-f]{40}", first)
    assert first == again != other


def test_calibration_tables_are_linear_inside_and_flat_outside() -> None:
    """An intensity off the table takes the nearest row."""
    table = ((1.5, 10.0), (3.0, 40.0))

    assert [interpolate(table, x) for x in (1.0, 1.5, 2.25, 3.0, 9.0)] == [10, 10, 25, 40, 40]


def test_names_are_unique_and_kinds_known() -> None:
    """The registry is the list that the command line shows."""
    names = [fault.name for fault in FAULTS]

    assert len(set(names)) == len(names)
    assert {fault.kind for fault in FAULTS} == set(FaultKind)
    assert all(fault.description and len(fault.description) < 90 for fault in FAULTS)


def test_every_slow_setting_is_one_that_the_server_has() -> None:
    """A renamed setting would make the deploy fail instead of slow."""
    for settings in VARIANTS.values():
        parse([f"{k}={v if isinstance(v, str) else v[0][1]}" for k, v in settings.items()])


def test_the_truth_is_private_and_complete(tmp_path: Path) -> None:
    """Only its owner can read it."""
    file = tmp_path / "truth.json"
    injection = Injection("chat", {"variant": "x"}, started_unix_s=5.0)

    write_truth(file, truth_of(FAULTS[0], injection, 3.0))

    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_bytes()) == {
        "fault": FAULTS[0].name,
        "kind": str(FAULTS[0].kind),
        "target": "chat",
        "intensity": 3.0,
        "started_unix_s": 5.0,
        "ended_unix_s": None,
        "parameters": {"variant": "x"},
    }


def test_a_truth_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """The path and the reason are in it."""
    with pytest.raises(WorkloadError, match="cannot write --truth"):
        write_truth(tmp_path / "gone/truth.json", truth_of(FAULTS[0], Injection("x", {}), 3.0))


def test_the_list_names_every_fault() -> None:
    """A line of JSON each."""
    result = run("--list", "--json")

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["name"] for row in rows] == [fault.name for fault in FAULTS]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("nonsense", "--state", "."), "choose one of"),
        (("cpu-quota",), "--state"),
        (("cpu-quota", "--state", "/nowhere"), "no workload runs"),
        (("cpu-quota", "--state", ".", "--intensity", "0.5"), "--intensity"),
        (("cpu-quota", "--state", ".", "--variant", "x"), "no variant"),
    ],
)
def test_what_cannot_start_is_one_line_and_exit_2(words: tuple[str, ...], reason: str) -> None:
    """No traceback, nothing on stdout."""
    result = run(*words)

    assert (result.returncode, result.stdout) == (2, "")
    assert reason in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_the_server_gets_its_identity_and_settings() -> None:
    """Options without a value are left out."""
    words = ServeConfig("chat", "tiny").command(Release("abc", "1.0.0", {"max_running": "4"}), 9)

    assert words[1:6] == ["-m", "kernels.cli", "serve", "--listen-fd", "9"]
    pairs = list(zip(words[6::2], words[7::2], strict=True))
    assert ("--revision", "abc") in pairs
    assert pairs[-1] == ("--set", "max_running=4")
    assert "--otlp" not in words


def test_a_state_folder_too_deep_for_a_socket_is_refused() -> None:
    """The kernel's limit is 107 bytes."""
    with pytest.raises(WorkloadError, match="shorter --state"):
        control_socket(Path("/" + "x" * 120))


def test_a_broken_state_file_is_no_workload(tmp_path: Path) -> None:
    """Half a file or another program's is told in one line."""
    (tmp_path / "workload.json").write_text('{"pid": 1')

    with pytest.raises(WorkloadError, match="no workload runs"):
        read_state(tmp_path)
