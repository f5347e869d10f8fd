"""Runs the bcc program and answers questions about it.

Not imported by us: started as a script under the system's Python, which has the distribution's bcc package.

    python3 helper.py --program FILE --slots FILE --owners N (--cgroups | --processes) [--headers BUILD SOURCE]

Writes one JSON object a line on standard output: {"event":"ready"}, or {"event":"failed","kind":…,"reason":…} and the
end; then one {"event":"reading",…} for each line on standard input, a list of cgroups to forget. Ends with its input, so that it does not outlive
who started it. All mounts are made in a mount namespace of its own and vanish with it.
"""

import argparse
import ctypes
import importlib
import json
import os
import select
import sys
import threading
from pathlib import Path
from typing import Any

REST = 2**64 - 1
LOOK_S = 1.0
VIEW = Path("/sys/fs/bpf")
"""Where the joined headers are mounted: a folder that every kernel with BPF has and that bcc does not need."""
STATS = ("storage_full", "cgroups_full", "pairs_full", "switches_missed")
_NEW_NAMESPACE, _RECURSIVE, _PRIVATE = 0x20000, 0x4000, 0x40000


def say(**fields: object) -> None:
    """Write one line; whoever reads it may be gone."""
    sys.stdout.write(json.dumps(fields, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def fail(kind: str, reason: str) -> None:
    """Say why not, and end."""
    say(event="failed", kind=kind, reason=reason)
    sys.exit(1)


def end_with_parent() -> None:
    """End at once when standard input is closed, also while bcc compiles."""

    def wait() -> None:
        waiting = select.poll()
        waiting.register(0, select.POLLHUP | select.POLLERR)
        waiting.poll()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def mount(kind: bytes | None, where: bytes, flags: int = 0) -> None:
    """Mount a file system without a device; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(kind, where, kind, flags, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), where.decode())


def enter_namespace() -> None:
    """Take a mount namespace of our own in which tracefs is mounted; raises OSError."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NAMESPACE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "unshare")
    mount(None, b"/", _RECURSIVE | _PRIVATE)
    if not any(
        Path(p, "events/sched").exists()
        for p in ("/sys/kernel/debug/tracing", "/sys/kernel/tracing")
    ):
        mount(b"tracefs", b"/sys/kernel/tracing")


def join_headers(build: Path, source: Path) -> None:
    """Show bcc the two halves of a distribution's headers as one folder; raises OSError."""
    mount(b"tmpfs", bytes(VIEW))
    arch = next(
        path.name for path in (build / "arch").iterdir() if (path / "include/generated").is_dir()
    )
    for folder in ("include", f"arch/{arch}/include"):
        (VIEW / folder).mkdir(parents=True)
        joined = {path.name: path for half in (source, build) for path in (half / folder).iterdir()}
        for name, path in joined.items():
            (VIEW / folder / name).symlink_to(path)
    os.environ["BCC_KERNEL_SOURCE"] = str(VIEW)


class Owners:
    """Which cgroup each process belongs to, remembered beyond its end."""

    def __init__(self, parents: Any) -> None:
        self._parents = parents
        self._paths: dict[int, str] = {}

    def alive(self, pid: int) -> bool:
        """Tell whether the process is there."""
        return Path(f"/proc/{pid}").exists()

    def look(self, pid: int) -> None:
        """Read where the process is now."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
        except OSError:
            return
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if "cpu" in controllers.split(","):
                self._paths[pid] = path

    def path(self, pid: int) -> str:
        """Return the cgroup of a process or, when it was too brief to be seen, of its nearest known ancestor."""
        for _ in range(16):
            if pid in self._paths:
                return self._paths[pid]
            try:
                pid = self._parents[ctypes.c_uint32(pid)].value
            except KeyError:
                break
            self.look(pid)
        return "other"

    def known(self, pid: int) -> bool:
        """Tell whether the process was looked up."""
        return pid in self._paths

    def forget(self, pid: int) -> None:
        """Drop a process that has ended and whose time is accounted."""
        self._paths.pop(pid, None)


class ByCgroup:
    """Readings whose owners are cgroup ids, as the kernel counts them."""

    def __init__(self, bpf: Any) -> None:
        self._bpf = bpf

    def look(self) -> None:
        """Nothing has to be looked up."""

    def forget(self, gone: set[int]) -> None:
        """Make room: drop all that was counted for cgroups that are gone."""
        if not gone:
            return
        for cgroup_id in gone:
            self._bpf["delays"].pop(ctypes.c_uint64(cgroup_id), None)
        for pair in list(self._bpf["matrix"].keys()):
            if pair.victim in gone or pair.aggressor in gone:
                self._bpf["matrix"].pop(pair, None)

    def read(self) -> tuple[dict[Any, list[int]], dict[tuple[Any, Any], int]]:
        """Return values by owner and nanoseconds by (victim, aggressor)."""
        delays = {name(key.value): fields(value) for key, value in self._bpf["delays"].items()}
        matrix = {
            (name(key.victim), name(key.aggressor)): value.value
            for key, value in self._bpf["matrix"].items()
        }
        return delays, matrix


class ByProcess:
    """Readings whose owners are processes in the kernel and cgroups here; what a process had is added to where it is."""

    def __init__(self, bpf: Any) -> None:
        self._bpf = bpf
        self._owners = Owners(bpf["parents"])
        self._delays: dict[str, list[int]] = {}
        self._matrix: dict[tuple[str, str], int] = {}
        self._seen: dict[Any, list[int]] = {}

    def forget(self, gone: set[int]) -> None:
        """Nothing has to be dropped: what is kept goes by the name of the cgroup."""

    def look(self) -> None:
        """Look up processes that are new, before they end."""
        for key in self._bpf["delays"].keys():  # noqa: SIM118 (a table of bcc, not a mapping)
            if not self._owners.known(key.value):
                self._owners.look(key.value)

    def read(self) -> tuple[dict[Any, list[int]], dict[tuple[Any, Any], int]]:
        """Return values by cgroup and nanoseconds by (victim, aggressor), since the start."""
        ended = set()
        for key, value in list(self._bpf["delays"].items()):
            pid = key.value
            self._owners.look(pid)
            if pid != REST and not self._owners.alive(pid):
                ended.add(pid)
            grown = self._grown(pid, fields(value))
            total = self._delays.setdefault(self._path(pid), [0] * len(grown))
            total[:] = [a + b for a, b in zip(total, grown, strict=True)]
        for key, value in list(self._bpf["matrix"].items()):
            pair = (key.victim, key.aggressor)
            place = (self._path(pair[0]), self._path(pair[1]))
            self._matrix[place] = self._matrix.get(place, 0) + self._grown(pair, [value.value])[0]
            if pair[0] in ended or pair[1] in ended:
                self._bpf["matrix"].pop(key, None)
                self._seen.pop(pair, None)
        for pid in ended:
            self._bpf["delays"].pop(ctypes.c_uint64(pid), None)
            self._seen.pop(pid, None)
            self._owners.forget(pid)
        return dict(self._delays), dict(self._matrix)

    def _grown(self, key: Any, values: list[int]) -> list[int]:
        before = self._seen.get(key, [0] * len(values))
        self._seen[key] = values
        return [max(0, now - then) for now, then in zip(values, before, strict=True)]

    def _path(self, pid: int) -> str:
        special = name(pid)
        return special if isinstance(special, str) else self._owners.path(pid)


def name(owner: int) -> int | str:
    """Return what an owner is called; a number where someone else must name it."""
    return {0: "idle", REST: "other"}.get(owner, owner)


def fields(value: Any) -> list[int]:
    """Return slots, sum and involuntary switches as one list."""
    return [*value.slots, value.sum_ns, value.involuntary]


def load(options: argparse.Namespace) -> Any:
    """Compile, load and attach."""
    try:
        enter_namespace()
        if options.headers:
            join_headers(*map(Path, options.headers))
    except OSError as exc:
        fail("no_permission", f"the bcc loader needs CAP_SYS_ADMIN: {exc}")
    try:
        bcc = importlib.import_module("bcc")
    except ImportError as exc:
        fail("not_supported", f"{exc} (Debian and Ubuntu: apt-get install python3-bpfcc)")
    text = (
        Path(options.slots)
        .read_text(encoding="utf-8")
        .replace('#include "kernel.h"', "")
        .replace("#pragma once", "")
    )
    text = f"#define TC_OWNERS {options.owners}\n{text}\n{Path(options.program).read_text(encoding='utf-8')}"
    try:
        bpf = bcc.BPF(text=text, cflags=["-DTC_BY_PROCESS"] if options.processes else [])
    except Exception as exc:  # noqa: BLE001 (bcc raises Exception itself when compiling or attaching fails)
        fail("failed", f"bcc: {exc}")
    rest = ctypes.c_uint64(REST)
    bpf["delays"][rest] = bpf["delays"].Leaf()
    return bpf


def drops(bpf: Any) -> dict[str, int]:
    """Count what found no room, and the runs that were skipped because another program ran on that CPU."""
    found = {name: bpf["stats"][ctypes.c_int(index)].value for index, name in enumerate(STATS)}
    missed = 0
    for function in bpf.funcs.values():
        for line in (
            Path(f"/proc/self/fdinfo/{function.fd}").read_text(encoding="utf-8").splitlines()
        ):
            if line.startswith("recursion_misses:"):
                missed += int(line.split()[1])
    return {**found, "runs_missed": missed}


def main() -> None:
    """Answer each line of input with a reading."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--slots", required=True)
    parser.add_argument("--owners", type=int, required=True)
    parser.add_argument("--headers", nargs=2)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--cgroups", action="store_true")
    kind.add_argument("--processes", action="store_true")
    options = parser.parse_args()
    end_with_parent()
    bpf = load(options)
    source = ByProcess(bpf) if options.processes else ByCgroup(bpf)
    say(event="ready")
    while True:
        asked, _, _ = select.select([0], [], [], LOOK_S)
        if not asked:
            source.look()
            continue
        line = sys.stdin.buffer.readline()
        if not line:
            return
        source.forget({int(cgroup_id) for cgroup_id in line.split()})
        delays, matrix = source.read()
        say(
            event="reading",
            delays=list(delays.items()),
            matrix=[[*pair, ns] for pair, ns in matrix.items()],
            dropped=drops(bpf),
        )


if __name__ == "__main__":
    main()
