"""The command line: what it refuses, and what a dry run gives away."""

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from detector.cli.demo import command, faults, gpus, ports, preflight, stores
from detector.cli.demo.faults import NONE, Fault
from detector.cli.demo.plan import draw
from detector.errors import CannotStartError
from tests.support.demo_faults import (
    BAD_DEPLOY,
    CPU_QUOTA,
    EVERY,
    GPU_LOST,
    NET_LOSS,
    SLOW_SQL,
    SURGE,
)


def _demo(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all state in the test's folder, and the list of faults to what tests know."""
    monkeypatch.setenv("TAILCAUSE_STATE", str(tmp_path))
    monkeypatch.setattr(faults, "ask", lambda: EVERY)


def _answering(tmp_path: Path, text: str, code: int = 0) -> tuple[str, ...]:
    """Return a doctor that says this."""
    script = tmp_path / "doctor.py"
    script.write_text(
        f"import sys\nprint({text!r}, file=sys.stderr if {code} == 2 else sys.stdout)\nsys.exit({code})\n"
    )
    return sys.executable, str(script)


def _with_cgroups(monkeypatch: pytest.MonkeyPatch, why_not: str | None) -> None:
    monkeypatch.setattr(preflight, "no_cgroups_because", lambda: why_not)


def test_a_dry_run_shows_every_part_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Command lines with ports, and no folder is made."""
    _with_cgroups(monkeypatch, None)

    assert _demo("--dry-run", "--seed", "7") == 0
    text = capsys.readouterr().out

    wanted = ("detector.cli.main serve", "agent.cli run", "kernels.cli up", "kernels.cli load")
    assert [part for part in wanted if part not in text] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_dry_run_does_not_give_the_onset_away(
    form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the pauses nor the strength are in it."""
    _with_cgroups(monkeypatch, None)
    _demo("--dry-run", "--seed", "7", *form)
    text = capsys.readouterr().out

    for step in draw(CPU_QUOTA, 7, 20.0).steps:
        assert f"{step.wait_s:.1f}" not in text
        assert f"--intensity {step.intensity:.3f}" not in text


def test_a_dry_run_as_json_is_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ports and command lines to work on."""
    _with_cgroups(monkeypatch, None)
    _demo("--dry-run", "--seed", "7", "--json")
    plan = json.loads(capsys.readouterr().out)

    assert len(set(plan["ports"].values())) == 5
    assert set(plan["parts"]) == {"detector", "agent", "workload", "load"}


def test_a_quota_without_cgroups_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says why, and what works instead."""
    _with_cgroups(monkeypatch, "/sys/fs/cgroup/cpu is not writable (not root)")

    code = _demo("--fault", "cpu-quota", "--seed", "7")
    lines = capsys.readouterr().err.splitlines()

    assert (code, len(lines)) == (2, 1)
    assert "not root" in lines[0]
    assert "--fault bad-deploy" in lines[0]


@pytest.mark.parametrize("fault", [BAD_DEPLOY, SURGE, NONE])
def test_the_other_faults_need_no_cgroups(fault: Fault) -> None:
    """They go on with less to see."""
    preflight.check_fault(fault, "not root")


def test_a_misspelt_fault_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With the name that was meant."""
    code = _demo("--fault", "net-los", "--seed", "7")
    lines = capsys.readouterr().err.splitlines()

    assert (code, len(lines)) == (2, 1)
    assert "did you mean net-loss?" in lines[0]


def test_the_list_says_what_must_be_made_of_each_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """Verdict, first cause where one is judged, and needs."""
    assert _demo("--list") == 0
    rows = {
        line.split()[0]: " ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines()
    }

    assert {"FAULT", *(fault.name for fault in EVERY)} == set(rows)
    assert rows["cpu-quota"] == "fault fault cpu_throttling root"
    assert rows["net-loss"] == "fault fault not judged root, up --network"
    assert rows["surge"] == "demand demand - -"
    assert rows["cold-start"] == "decoy no incident - -"


def test_the_list_as_json_is_a_line_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """For programs, with null where no cause is judged."""
    assert _demo("--list", "--json") == 0
    rows = {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}

    assert rows["net-loss"]["first_cause"] is None
    assert rows["noisy-neighbour"]["first_cause"] == "noisy_neighbour"
    assert rows["noisy-neighbour"]["probes"]


def test_up_is_started_with_what_the_fault_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And with a store of the demo's own where it needs one."""
    monkeypatch.setattr(stores, "missing", lambda _: None)
    _demo("--fault", "slow-sql", "--seed", "7", "--dry-run", "--json")
    parts = json.loads(capsys.readouterr().out)["parts"]

    assert parts["workload"][-2:] == ["--set", "tenant_db=postgresql://…"]
    assert parts["store-postgresql"][-1] == "postgresql"


def test_a_network_without_root_is_one_clear_line() -> None:
    """It says why before anything starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(CannotStartError, match=r"^net-loss needs a network .*not root"):
            preflight.check_fault(NET_LOSS, None)


def test_a_missing_tool_of_the_network_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with what to install."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(preflight, "_NETWORK_TOOLS", {"no-such-tool": "nftables"})

    with pytest.raises(
        CannotStartError, match=r"`no-such-tool` is missing .apt-get install nftables"
    ):
        preflight.check_fault(NET_LOSS, None)


def test_a_missing_store_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with what to install."""
    monkeypatch.setattr(stores, "program", lambda name: None if name == "initdb" else "/bin/true")

    with pytest.raises(CannotStartError, match=r"`initdb` is missing: apt-get install postgresql$"):
        preflight.check_fault(SLOW_SQL, None)


def test_without_a_compiler_there_are_no_gpus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fake NVML's own words are in the line, and nothing has started."""
    said = "import sys; sys.exit('no C compiler: apt-get install gcc')"
    monkeypatch.setattr(gpus, "_PYTHON", (sys.executable, "-c", said))

    code = _demo("--fault", GPU_LOST.name, "--seed", "7")

    assert code == 2
    assert "no C compiler: apt-get install gcc" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("form", [(), ("--dry-run",)])
def test_a_neighbour_without_probes_is_one_clear_line(
    form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fault could be made, but the report could not name who did it: it says so before anything starts."""
    _with_cgroups(monkeypatch, None)
    monkeypatch.setattr(preflight, "no_probes_because", lambda: "this kernel has no BTF")

    code = _demo("--fault", "noisy-neighbour", "--seed", "7", *form)
    lines = capsys.readouterr().err.splitlines()

    assert (code, len(lines)) == (2, 1)
    assert "noisy-neighbour needs the agent's eBPF probes" in lines[0]
    assert "this kernel has no BTF" in lines[0]


def test_other_faults_do_not_ask_for_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found without, and asking takes seconds."""
    _with_cgroups(monkeypatch, None)
    monkeypatch.setattr(preflight, "no_probes_because", lambda: pytest.fail("asked"))

    assert _demo("--fault", "cpu-quota", "--seed", "7", "--dry-run") == 0


@pytest.mark.parametrize(
    ("findings", "reason"),
    [
        ([{"name": "probe sched", "state": "ok", "reason": "263 ns an event"}], None),
        (
            [
                {"name": "ebpf", "state": "no_permission", "reason": "needs CAP_BPF"},
                {"name": "probe sched", "state": "no_permission", "reason": "needs CAP_BPF"},
            ],
            "needs CAP_BPF",
        ),
        (
            [{"name": "ebpf", "state": "disabled", "reason": "switched off by configuration"}],
            "switched off by configuration",
        ),
        ([{"name": "ebpf", "state": "ok", "reason": ""}], "its state is ok"),
        ([], "its state is unknown"),
    ],
)
def test_the_agent_is_asked_for_its_scheduler_probe(
    tmp_path: Path, findings: list[dict[str, str]], reason: str | None
) -> None:
    """Its state counts, not that of others; a doctor that found something to fix has answered too."""
    doctor = _answering(tmp_path, json.dumps({"findings": findings}), code=1)

    assert preflight.no_probes_because(doctor) == reason


def test_an_agent_that_cannot_answer_is_a_reason(tmp_path: Path) -> None:
    """Its last words are in it."""
    refused = preflight.no_probes_because(_answering(tmp_path, "bad key 'x'", code=2))
    absent = preflight.no_probes_because((str(tmp_path / "nothing"),))

    assert refused == "`tailcause-agent doctor` failed (bad key 'x')"
    assert absent is not None
    assert "does not answer" in absent


def test_without_capabilities_the_demo_says_so() -> None:
    """The real agent is asked, as a process that may not load probes."""
    taken = "-bpf,-sys_admin,-perfmon"
    without = (
        ("setpriv", f"--bounding-set={taken}", f"--inh-caps={taken}") if os.geteuid() == 0 else ()
    )
    ended = subprocess.run(
        (*without, sys.executable, "-m", "detector.cli.main", "demo", "--fault", "noisy-neighbour", "--dry-run"),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "needs the agent's eBPF probes" in ended.stderr


def test_a_missing_package_names_its_extra() -> None:
    """One line with the command to type."""
    needed = (("json", "detector"), ("no_such_module_here", "workload"))

    with pytest.raises(
        CannotStartError,
        match=r"^no_such_module_here is not installed: pip install 'tailcause\[workload\]'$",
    ):
        preflight.check_packages(needed)


def test_several_missing_packages_are_one_line() -> None:
    """A missing parent package counts as missing too."""
    needed = (("no_such.sub", "agent"), ("none_such", "workload"))

    with pytest.raises(CannotStartError, match=r"are not installed: .*\[agent,workload\]"):
        preflight.check_packages(needed)


def test_a_busy_machine_is_told_of_before_it_spoils_the_run() -> None:
    """Three quarters of the CPUs in use by others are too much."""
    note = preflight.busy_note("cpu 100 0 100 900 0 0 0 0 0 0\n", "cpu 130 5 140 920 5 0 0 0 0 0\n")

    assert note is not None
    assert "75% of the CPUs" in note


def test_an_idle_machine_is_not_worth_a_line() -> None:
    """Waiting for a disk is idle too."""
    before, after = "cpu 100 0 100 900 0 0 0 0 0 0\n", "cpu 110 0 110 960 20 0 0 0 0 0\n"

    assert preflight.busy_note(before, after) is None


def test_too_little_traffic_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason."""
    code = _demo("--rate", "2")

    assert code == 2
    assert "15 to 200" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, exit code 2, and JSON on stdout where that was asked for."""
    (tmp_path / "file").touch()

    code = _demo("--fault", "none", "--json", "--run-dir", str(tmp_path / "file" / "run"))
    out, err = capsys.readouterr()

    assert (code, err.count("cannot write to")) == (2, 1)
    assert json.loads(out)["exit_code"] == 2


def test_ports_are_free_and_below_the_ephemeral_range() -> None:
    """No outgoing connection can take one before its part does."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    taken = ports.take()

    chosen = [getattr(taken, name) for name in taken.__struct_fields__]
    assert len(set(chosen)) == 5
    assert max(chosen) < max(low, 16000)
    for port in chosen:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
