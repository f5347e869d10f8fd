"""The scheduler probe through bcc: the same readings as `ebpf.probes.sched`, without BTF and without the ledger."""

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from ebpf.bcc_loader.headers import find
from ebpf.cgroupids import CgroupPaths
from ebpf.errors import EbpfError, LoadError, NoPermissionError, NotSupportedError
from ebpf.layout import MAX_CGROUPS, SLOTS, Hierarchy
from ebpf.probe import Machine
from ebpf.reading import Histogram, Reading, Readings
from ebpf.slotpool import GRACE_S

HERE = Path(__file__).parent
SYSTEM_PYTHON = Path("/usr/bin/python3")
COMPILE_S = 120.0
ANSWER_S = 20.0
_PROCESSES = 8192
_ERRORS: Mapping[str, type[EbpfError]] = {
    "not_supported": NotSupportedError,
    "no_permission": NoPermissionError,
}

Owner = int | str


class SchedBcc:
    """Run-queue delay and its matrix, counted by a helper process."""

    name = "sched-bcc"

    def __init__(self, python: Path = SYSTEM_PYTHON) -> None:
        self._python = python
        self._helper: subprocess.Popen[bytes] | None = None
        self._paths: CgroupPaths | None = None
        self._rest = b""
        self._gone_since_s: dict[int, float] = {}
        self._expired: list[int] = []

    def attach(self, kernel: Machine) -> None:
        """Start the helper and wait until it counts; takes about a second, a minute at most."""
        headers = find()
        by_cgroup = kernel.cgroups.hierarchy is Hierarchy.UNIFIED
        command = [
            str(self._python), "-E", "-s", str(HERE / "helper.py"),
            "--program", str(HERE / "sched.bcc.c"), "--slots", str(HERE.parent / "include/slots.h"),
            "--owners", str(MAX_CGROUPS if by_cgroup else _PROCESSES),
            "--cgroups" if by_cgroup else "--processes",
            *(("--headers", str(headers.build), str(headers.source)) if headers else ()),
        ]  # fmt: skip
        try:
            self._helper = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as exc:
            raise NotSupportedError(f"the bcc loader needs {self._python}: {exc}") from exc
        self._paths = CgroupPaths(kernel.cgroups.mount)
        try:
            self._answer(COMPILE_S)
        except BaseException:
            self.detach()
            raise

    def read(self) -> Readings:
        """Ask the helper; raises LoadError when it has died or does not answer."""
        if self._helper is None or self._helper.stdin is None:
            return Readings()
        try:
            gone, self._expired = self._expired, []
            self._helper.stdin.write(" ".join(map(str, gone)).encode() + b"\n")
            self._helper.stdin.flush()
        except OSError as exc:
            raise LoadError(f"the bcc helper has died: {exc}") from exc
        return self._readings(self._answer(ANSWER_S))

    def programs(self) -> Mapping[str, int]:
        """Return nothing: the programs belong to the helper."""
        return {}

    def detach(self) -> None:
        """End the helper, and with it its programs."""
        helper, self._helper, self._rest = self._helper, None, b""
        if helper is None:
            return
        helper.kill()
        helper.wait()
        for pipe in (helper.stdin, helper.stdout):
            if pipe is not None:
                pipe.close()

    def _answer(self, within_s: float) -> dict[str, object]:
        """Return the next line of the helper."""
        line = self._line(time.monotonic() + within_s)
        try:
            said: dict[str, object] = json.loads(line)
        except ValueError as exc:
            raise LoadError(f"the bcc helper speaks nonsense: {line[:80]!r}") from exc
        if said.get("event") == "failed":
            raise _ERRORS.get(str(said.get("kind")), LoadError)(str(said.get("reason")))
        return said

    def _line(self, deadline_s: float) -> bytes:
        if self._helper is None or self._helper.stdout is None:
            raise LoadError("the bcc helper is not running")
        out = self._helper.stdout.fileno()
        waiting = select.poll()
        waiting.register(out, select.POLLIN)
        while b"\n" not in self._rest:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not waiting.poll(left_s * 1000):
                raise LoadError("the bcc helper does not answer")
            more = os.read(out, 1 << 16)
            if not more:
                raise LoadError("the bcc helper has died")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _readings(self, said: dict[str, object]) -> Readings:
        delays: list[tuple[Owner, list[int]]] = said["delays"]  # type: ignore[assignment]
        matrix: list[tuple[Owner, Owner, int]] = said["matrix"]  # type: ignore[assignment]
        dropped: dict[str, int] = said["dropped"]  # type: ignore[assignment]
        names = self._names(
            {owner for owner, _ in delays} | {o for pair in matrix for o in pair[:2]}
        )
        series: list[Reading] = []
        events = 0
        for owner, values in delays:
            if not any(values):
                continue
            labels = {"cgroup": names[owner]}
            events += sum(values[:SLOTS])
            histogram = Histogram(tuple(values[:SLOTS]), values[SLOTS] / 1e9)
            series.append(Reading("runqueue.delay", labels, histogram))
            series.append(
                Reading("runqueue.involuntary_switches", labels, float(values[SLOTS + 1]))
            )
        for victim, aggressor, ns in matrix:
            pair = {"cgroup": names[victim], "aggressor": names[aggressor]}
            series.append(Reading("runqueue.wait_on", pair, ns / 1e9))
        return Readings(tuple(series), dropped, events)

    def _names(self, owners: set[Owner]) -> dict[Owner, str]:
        """Return the path of each owner; one walk of the tree when any is new."""
        if self._paths is None:
            return {}
        ids = {owner for owner in owners if isinstance(owner, int)}
        if any(self._paths.path(cgroup_id) is None for cgroup_id in ids):
            self._paths.walk()
        self._look_for_gone(ids, time.monotonic())
        return {
            owner: owner if isinstance(owner, str) else self._paths.path(owner) or f"(gone:{owner})"
            for owner in owners
        }

    def _look_for_gone(self, ids: set[int], now_s: float) -> None:
        """Note the cgroups that have been gone for long enough; the helper drops them at the next reading."""
        if self._paths is None:
            return
        for cgroup_id in ids:
            if self._paths.exists(cgroup_id):
                self._gone_since_s.pop(cgroup_id, None)
            elif now_s - self._gone_since_s.setdefault(cgroup_id, now_s) >= GRACE_S:
                self._expired.append(cgroup_id)
                del self._gone_since_s[cgroup_id]
