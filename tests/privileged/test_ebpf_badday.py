"""Bad days: whatever is missing or forbidden is a named state; never a crash, never a false zero; nothing is left behind."""

import json
import os
import signal
import subprocess
import sys

import pytest

from ebpf.libbpf import Library
from ebpf.probes.mem import HOOKS, Mem
from ebpf.probes.sched import Sched
from ebpf.session import Session, State
from tests.support.brief_cgroups import goes_on
from tests.support.probe_session import (
    attached,
    bpf_files,
    map_ids,
    needs_probes,
    pins,
    program_ids,
    still_loaded,
)

pytestmark = [pytest.mark.privileged, needs_probes]

START = """
import json
from ebpf.registry import PROBES
from ebpf.session import Session
session = Session([make() for make in PROBES.values()])
session.start()
session.read()
print(json.dumps({name: [slot.state, slot.reason] for name, slot in session.slots.items()}))
session.stop()
"""


def test_missing_hook_is_a_named_state() -> None:
    """A probe whose hook this kernel lacks says which; the others go on."""
    session = Session([Sched(), Mem(hooks={**HOOKS, "reclaim_begin": "no_such_hook"})])
    session.start()
    try:
        assert session.slots["mem"].state is State.NOT_SUPPORTED
        assert "no_such_hook" in session.slots["mem"].reason
        assert session.slots["sched"].state is State.ON
        assert goes_on(session)
    finally:
        session.stop()


def states_without(*capabilities: str) -> dict[str, tuple[str, str]]:
    """Start all probes in a process that lacks some capabilities; return states and reasons."""
    dropped = ",".join(f"-{name}" for name in capabilities)
    done = subprocess.run(
        (
            "setpriv",
            f"--bounding-set={dropped}",
            f"--inh-caps={dropped}",
            sys.executable,
            "-c",
            START,
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, tuple[str, str]] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize(
    "capability",
    [
        "bpf",
        "perfmon",
        "sys_admin",
        "sys_resource",
        "sys_ptrace",
        "net_admin",
        "dac_override",
        "ipc_lock",
    ],
)
def test_each_capability_taken_away_alone(capability: str) -> None:
    """Whatever one capability is missing, each probe is on or says why not, and the scheduler probe is on."""
    states = states_without(capability)
    assert states["sched"][0] == "on"
    assert all(state == "on" or reason for state, reason in states.values())


@pytest.mark.parametrize(
    ("capabilities", "named"),
    [
        (("sys_admin", "bpf"), "CAP_BPF"),
        (("sys_admin", "perfmon"), "CAP_PERFMON"),
        (("sys_admin", "bpf", "perfmon"), "CAP_BPF and CAP_PERFMON"),
    ],
)
def test_missing_capability_is_named(capabilities: tuple[str, ...], named: str) -> None:
    """Where CAP_SYS_ADMIN does not stand in for it, the reason names what is missing."""
    state, reason = states_without(*capabilities)["sched"]
    assert state == "no_permission"
    assert named in reason


def test_unload_leaves_nothing() -> None:
    """After `stop` no program, map, link or pin of ours is in the kernel, and no descriptor is open."""
    library = Library()
    files, pinned = bpf_files(), pins()
    before = program_ids(), map_ids()
    with attached(Sched(), Mem()) as session:
        session.read()
        programs, maps = program_ids() - before[0], map_ids() - before[1]
        assert programs
        assert maps
    assert bpf_files() == files
    assert pins() == pinned
    assert still_loaded(library, programs, maps) == []


def test_killed_agent_leaves_nothing() -> None:
    """When the process that loaded them is killed, the kernel drops programs, maps and links by itself."""
    waits = START.replace(
        "print(json", "from tests.support.probe_session import program_ids, map_ids; print(json"
    )
    waits = waits.replace(
        "session.stop()",
        "import time; print(json.dumps([sorted(program_ids()), sorted(map_ids())]), flush=True); time.sleep(600)",
    )
    agent = subprocess.Popen((sys.executable, "-c", waits), stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    agent.stdout.readline()
    programs, maps = json.loads(agent.stdout.readline())
    pinned = pins()
    os.kill(agent.pid, signal.SIGKILL)
    agent.communicate()
    assert programs
    assert still_loaded(Library(), set(programs), set(maps)) == []
    assert pins() == pinned
