"""What tests of probes share: whether they can run here, bounds on timing, and proof that nothing is left behind."""

import ctypes
import errno
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ebpf.libbpf import Library
from ebpf.probe import Probe
from ebpf.reading import Histogram, Readings
from ebpf.session import BUILT, Session, State

LOOSE = os.environ.get("TAILCAUSE_TIMING") == "loose"
"""Set where time itself is unreliable, as under emulation: counts stay exact, bounds on times widen."""

_LOOSER = 6.0
_LOOSE_S = 0.03  # an emulated CPU that stands still is taken for one that runs, by the kernel too
_BPF_FILES = ("bpf-prog", "bpf-map", "bpf_link", "bpf-link", "perf_event", "btf")
_PINS = Path("/sys/fs/bpf")


def why_no_probes() -> str:
    """Name the capability that is missing here, or nothing."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        return "needs root on Linux (CAP_BPF, CAP_PERFMON)"
    if not (BUILT / "sched.bpf.o").exists():
        return "needs the compiled probes (clang, libbpf-dev)"
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "needs kernel BTF"
    return ""


needs_probes = pytest.mark.skipif(bool(why_no_probes()), reason=why_no_probes())


def close_to(truth_s: float, relative: float = 0.05, absolute_s: float = 0.001) -> Any:
    """Return what compares equal to a time within 5 % or a millisecond (more where time is unreliable)."""
    if LOOSE:
        relative, absolute_s = relative * _LOOSER, max(absolute_s * _LOOSER, _LOOSE_S)
    return pytest.approx(truth_s, rel=relative, abs=absolute_s)


def loosely(tight: float, loose: float) -> float:
    """Choose a bound by how far time can be trusted here."""
    return loose if LOOSE else tight


@contextmanager
def attached(*probes: Probe) -> Iterator[Session]:
    """Attach probes, all of which must come up, and detach them."""
    session = Session(probes)
    session.start()
    try:
        states = {name: (slot.state, slot.reason) for name, slot in session.slots.items()}
        assert states == dict.fromkeys(states, (State.ON, ""))
        yield session
    finally:
        session.stop()


def histogram(readings: Readings, metric: str, cgroup: str) -> Histogram:
    """Return a cgroup's histogram, empty when it has none yet."""
    for reading in readings.series:
        if reading.metric == metric and reading.labels["cgroup"] == cgroup:
            assert isinstance(reading.value, Histogram)
            return reading.value
    return Histogram((0,) * 40, 0.0)


def number(readings: Readings, metric: str, **labels: str) -> float:
    """Return one counter, 0 when it has not been seen yet."""
    for reading in readings.series:
        if reading.metric == metric and dict(reading.labels) == labels:
            assert isinstance(reading.value, float)
            return reading.value
    return 0.0


def bpf_files() -> dict[str, int]:
    """Count this process's descriptors of programs, maps, links and perf events."""
    found = dict.fromkeys(_BPF_FILES, 0)
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue
        for kind in _BPF_FILES:
            found[kind] += target.startswith("anon_inode:") and kind in target
    return found


def program_ids() -> set[int]:
    """Return the ids of the programs that this process holds."""
    return _ids("prog_id:")


def map_ids() -> set[int]:
    """Return the ids of the maps that this process holds."""
    return _ids("map_id:")


def pins() -> set[Path]:
    """Return everything pinned in the BPF file system."""
    return set(_PINS.rglob("*")) if _PINS.is_dir() else set()


def still_loaded(library: Library, programs: set[int], maps: set[int]) -> list[str]:
    """Name what the kernel still has of these after two seconds; it frees them in its own time."""
    deadline = time.monotonic() + 2.0
    while True:
        left = [f"program {i}" for i in programs if _exists(library, "prog", i)]
        left += [f"map {i}" for i in maps if _exists(library, "map", i)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _ids(field: str) -> set[int]:
    found = set()
    for entry in Path("/proc/self/fdinfo").iterdir():
        try:
            lines = entry.read_text().splitlines()
        except FileNotFoundError:
            continue
        found |= {int(line.split()[1]) for line in lines if line.startswith(field)}
    return found


def _exists(library: Library, kind: str, identity: int) -> bool:
    fd = getattr(library.call, f"bpf_{kind}_get_fd_by_id")(ctypes.c_uint32(identity))
    if fd >= 0:
        os.close(fd)
        return True
    return ctypes.get_errno() != errno.ENOENT
