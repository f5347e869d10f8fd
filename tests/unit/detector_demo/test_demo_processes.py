"""Parts as real processes: their events, their death, and the death of their parent."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from detector.cli.demo.errors import NotReachedError, PartDiedError
from detector.cli.demo.guard import guarded
from detector.cli.demo.processes import Fleet, PartSpec, Wave

Program = Callable[[str], None]

READY = "import json, time\nprint(json.dumps({'event': 'ready', 'port': 17}))\ntime.sleep(60)\n"
PARENT = """
import asyncio, sys
from pathlib import Path
from detector.cli.demo.processes import Fleet, PartSpec

async def main():
    fleet = Fleet(Path(sys.argv[1]))
    part = await fleet.start(PartSpec("sleeper", ("demo_part",)))
    await part.event("ready", 20)
    print(part.process.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that writes the module `demo_part`, which parts can run."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(text: str) -> None:
        (tmp_path / "demo_part.py").write_text(text)

    return write


async def _all_ended(fleet: Fleet) -> None:
    while fleet.pids:  # noqa: ASYNC110 - looks from outside, as a user would
        await asyncio.sleep(0.02)


def _spec(**other: object) -> PartSpec:
    return PartSpec("part", ("demo_part",), **other)  # type: ignore[arg-type]


def _is_gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True  # dead; whoever inherited it has not reaped it yet
        time.sleep(0.02)
    return False


async def test_a_json_line_on_stdout_is_an_event(program: Program, tmp_path: Path) -> None:
    """Lines for people in between do no harm."""
    program("print('hello')\n" + READY)
    fleet = Fleet(tmp_path)
    part = await fleet.start(_spec())

    event = await part.event("ready", 20)
    await fleet.stop()

    assert event["port"] == 17


async def test_stdout_and_stderr_are_in_the_log(program: Program, tmp_path: Path) -> None:
    """One file holds what a part said."""
    program("import sys\nprint('out')\nsys.stderr.write('err\\n')\n")
    fleet = Fleet(tmp_path)
    await fleet.start(_spec(may_finish=True))
    await _all_ended(fleet)
    await fleet.stop()

    assert {"out", "err"} == set((tmp_path / "part.log").read_text().split())


async def test_a_death_is_told_with_the_last_line_of_the_log(
    program: Program, tmp_path: Path
) -> None:
    """Whoever waits for something else learns of it at once."""
    program("import sys\nsys.stderr.write('first\\nport 4318 is taken\\n')\nsys.exit(2)\n")
    fleet = Fleet(tmp_path)
    await fleet.start(_spec())

    with pytest.raises(
        PartDiedError, match="part ended with exit code 2: port 4318 is taken"
    ) as dead:
        await guarded(asyncio.sleep(20), [fleet.failure])

    assert dead.value.exit_code == 2


async def test_a_killed_part_is_noticed_within_a_second(program: Program, tmp_path: Path) -> None:
    """The signal's name is told."""
    program(READY)
    fleet = Fleet(tmp_path)
    part = await fleet.start(_spec())
    await part.event("ready", 20)
    part.process.send_signal(signal.SIGKILL)
    began = time.monotonic()

    with pytest.raises(PartDiedError, match="part was killed by SIGKILL") as dead:
        await guarded(asyncio.sleep(20), [fleet.failure])

    assert dead.value.exit_code == 1
    assert time.monotonic() - began < 1.0


async def test_a_part_that_may_finish_is_no_failure(program: Program, tmp_path: Path) -> None:
    """An injector ends when its time is over."""
    program("print('done')\n")
    fleet = Fleet(tmp_path)
    await fleet.start(_spec(may_finish=True))
    await _all_ended(fleet)
    await asyncio.sleep(0.05)

    assert not fleet.failure.done()


async def test_a_part_that_is_never_ready_is_named(program: Program, tmp_path: Path) -> None:
    """A deadline says who was waited for and where to read on."""
    program("import time\ntime.sleep(60)\n")
    fleet = Fleet(tmp_path)
    part = await fleet.start(_spec())

    with pytest.raises(NotReachedError, match=r"the part was not ready after 0 s .*part\.log"):
        await part.event("ready", 0.05)
    await fleet.stop()


async def test_stopping_kills_what_does_not_listen(program: Program, tmp_path: Path) -> None:
    """SIGTERM first, then SIGKILL, for a child of the part too."""
    program(
        "import json, signal, subprocess\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(json.dumps({'event': 'ready', 'child': child.pid}), flush=True)\n"
        "signal.pause()\n"
    )
    fleet = Fleet(tmp_path)
    part = await fleet.start(_spec(wave=Wave.ACTORS))
    child = (await part.event("ready", 20))["child"]

    await fleet.stop()

    assert (_is_gone(part.process.pid), _is_gone(child)) == (True, True)


async def test_a_part_is_asked_before_it_is_killed(program: Program, tmp_path: Path) -> None:
    """What a part does on SIGTERM it gets to do."""
    done = tmp_path / "done"
    program(
        "import json, pathlib, signal, sys\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(done)!r}).touch(), sys.exit(0)))\n"
        "print(json.dumps({'event': 'ready'}), flush=True)\n"
        "signal.pause()\n"
    )
    fleet = Fleet(tmp_path)
    part = await fleet.start(_spec())
    await part.event("ready", 20)

    await fleet.stop()

    assert (part.process.returncode, done.exists()) == (0, True)


async def test_a_line_over_the_limit_does_not_stop_the_events(
    program: Program, tmp_path: Path
) -> None:
    """What follows the oversized line is still read."""
    program("print('x' * 3_000_000)\n" + READY)
    fleet = Fleet(tmp_path)
    part = await fleet.start(_spec())

    event = await part.event("ready", 20)
    await fleet.stop()

    assert event["port"] == 17


def test_killing_the_parent_takes_its_parts_down(program: Program, tmp_path: Path) -> None:
    """The kernel sees to it; nobody is left to do it."""
    program(READY)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())

    parent.kill()
    parent.wait()
    parent.stdout.close()

    assert _is_gone(pid)
    assert pid != os.getpid()
