"""The commands, as processes where it matters."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from detector.cli.main import COMMANDS, main
from detector.incidents.database import FILE, IncidentDatabase, Status
from detector.machine import Machine, check_all, check_cgroups, check_ports, check_pressure
from detector.model import Verdict
from detector.state import ServiceRecord, write_record
from tests.unit.detector.conftest import blank_report
from tests.unit.detector.test_incident_database import incident, snapshot

TAILCAUSE = (sys.executable, "-m", "detector.cli.main")


def stored(state: Path, verdict: Verdict = Verdict.FAULT) -> None:
    """Make a state folder with one reported incident."""
    database = IncidentDatabase(state / FILE)
    database.put(incident(), Status.ANALYSING)
    database.put_snapshot(snapshot())
    report = replace(blank_report(snapshot()), verdict=verdict)
    database.put_report(report, Status.REPORTED)
    database.close()


@pytest.mark.parametrize("command", [c.name for c in COMMANDS])
def test_every_help_ends_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And names the exit codes."""
    with pytest.raises(SystemExit) as exit_info:
        main([command, "--help"])
    assert exit_info.value.code == 0
    text = capsys.readouterr().out
    assert f"  tailcause {command}" in text.partition("examples:")[2]


def test_no_command_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Help and exit code 2."""
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().out


def test_without_incidents_explain_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 0: the question is answered."""
    assert main(["explain", "--state", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no incident\n"


def test_explain_prints_canonical_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The latest incident by default, read from the database when no service runs."""
    stored(tmp_path)
    assert main(["explain", "--json", "--state", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["incident"]["id"] == "svc-0"


def test_a_record_left_by_kill_9_does_not_mislead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its pid may live again as another process; nobody listens, so the database answers."""
    stored(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as once:
        port = once.getsockname()[1]
    write_record(tmp_path, ServiceRecord(os.getpid(), "127.0.0.1", port, 0, 0.0))
    assert main(["incidents", "--json", "--state", str(tmp_path)]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_an_inconclusive_report_exits_3(tmp_path: Path) -> None:
    """Scripts can tell."""
    stored(tmp_path, Verdict.INCONCLUSIVE)
    assert main(["explain", "svc-0", "--json", "--state", str(tmp_path)]) == 3


def test_an_unknown_incident_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, no traceback."""
    stored(tmp_path)
    assert main(["explain", "nope", "--state", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("tailcause explain: no incident 'nope'")


def test_incidents_lists_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With status and verdict."""
    stored(tmp_path)
    assert main(["incidents", "--json", "--state", str(tmp_path)]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["id"], listed["status"], listed["verdict"]) == ("svc-0", "reported", "fault")


def test_markup_in_a_headline_survives_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Square brackets are data."""
    stored(tmp_path)
    database = IncidentDatabase(tmp_path / FILE)
    report = replace(blank_report(snapshot()), headline="[node-1 GPU-3] is slow")
    database.put_report(report, Status.REPORTED)
    database.close()
    main(["incidents", "--state", str(tmp_path)])
    assert "[node-1 GPU-3] is slow" in capsys.readouterr().out


def test_replay_finds_a_report_that_cannot_be_reproduced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 1 and the lines that differ; exit 0 when they agree."""
    stored(tmp_path)
    monkeypatch.setattr("detector.rca.engine.analyse", blank_report)
    assert main(["replay", "svc-0", "--state", str(tmp_path)]) == 0
    stored(tmp_path, Verdict.DEMAND)
    assert main(["replay", "svc-0", "--state", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "-" in out
    assert '"demand"' in out


def test_a_missing_package_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the package and the extra."""
    monkeypatch.setitem(sys.modules, "msgspec", None)
    monkeypatch.delitem(sys.modules, "detector.cli.incidents", raising=False)
    assert main(["incidents"]) == 2
    assert "msgspec" in capsys.readouterr().err


def test_serve_starts_says_so_and_drains_on_sigterm(tmp_path: Path) -> None:
    """A real process: one JSON line, exit 0, no record left."""
    command = (*TAILCAUSE, "serve", "--state", str(tmp_path), "--otlp-port", "0", "--api-port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "ready"
        assert sorted(ready) == ["api_port", "event", "otlp_grpc_port", "otlp_port"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert not (tmp_path / "service.json").exists()


def test_serve_on_a_taken_port_exits_2(tmp_path: Path) -> None:
    """One line on stderr that names the port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            (*TAILCAUSE, "serve", "--state", str(tmp_path), "--otlp-port", str(port)),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


def test_doctor_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    """Every check has a name and a finding; each loss says what to do."""
    main(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)
    assert {"python", "packages", "cgroups", "pressure", "gpu", "ports", "disk"} <= {
        check["name"] for check in checks
    }
    assert all(check["ok"] or (check["lost"] and check["remedy"]) for check in checks)


def test_doctor_reads_the_machine_it_is_given(tmp_path: Path) -> None:
    """Pure v2 with PSI, from files."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text("1 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    machine = Machine(state=tmp_path, proc=tmp_path, python=(3, 10, 0))
    assert check_cgroups(machine).found == "v2"
    assert not check_pressure(machine).ok
    assert not check_all(machine)[0].ok


def test_doctor_names_the_port_that_is_taken(tmp_path: Path) -> None:
    """With what it is for."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check = check_ports(Machine(state=tmp_path, ports={port: "detector API"}))
    assert (check.ok, check.found) == (False, f"in use: {port} (detector API)")
