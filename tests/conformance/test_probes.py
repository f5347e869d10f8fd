"""Every registered probe keeps the same promises on this kernel: it attaches, reads, and leaves nothing behind."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebpf import progstats
from ebpf.apiprobe import ApiOptions
from ebpf.probe import Probe
from ebpf.probes.cuda import Cuda
from ebpf.probes.nccl import Nccl
from ebpf.probes.span import SpanProbe
from ebpf.registry import PROBES
from ebpf.session import BUILT, Session, State
from tests.support.probe_session import (
    bpf_files,
    map_ids,
    needs_probes,
    pins,
    program_ids,
    still_loaded,
)

pytestmark = [pytest.mark.privileged, needs_probes]

_NOBODY = Path("/proc/sys")
"""In the place of /proc for probes that look for processes: a folder that holds none."""

EVERY: Mapping[str, Callable[[], Probe]] = {
    **PROBES,
    "cuda": lambda: Cuda(ApiOptions(enabled=True, proc=_NOBODY)),
    "nccl": lambda: Nccl(ApiOptions(enabled=True, proc=_NOBODY)),
    "span": lambda: SpanProbe((BUILT / "libtailcause_span.so",), lambda _span: None),
}
"""What is registered, asked for where it must be, and the one probe that needs somebody to deliver to."""

every_probe = pytest.mark.parametrize("name", EVERY)

BUDGETS: Mapping[str, int] = {
    "sched/switch_with_state": 10550,
    "sched/note_moved_asleep": 50,
    "waits/walk_threads": 3450,
    "blkio/io_insert": 750,
    "blkio/io_requeue": 200,
    "blkio/io_merge": 150,
    "blkio/io_issue": 700,
    "blkio/io_complete": 750,
    "tcp/tcp_received": 5750,
    "tcp/tcp_state": 5750,
    "tcp/tcp_retransmitted": 350,
    "tcp/tcp_answered_again": 350,
    "mem/reclaim_begin": 50,
    "mem/reclaim_end": 5950,
    "mem/limit_begin": 50,
    "mem/limit_end": 6000,
    "mem/compaction_begin": 50,
    "mem/compaction_end": 6000,
    "mem/victim_task": 200,
    "mem/major_fault": 200,
    "cuda/enter_cuda": 6750,
    "cuda/leave_cuda": 6800,
    "nccl/enter_nccl": 6950,
    "nccl/leave_nccl": 6800,
    "span/span_start": 350,
    "span/span_end": 900,
}
"""Instructions that the verifier walks in each program: half as many again as when it was written."""


@contextmanager
def attached_with_what_it_needs(name: str) -> Iterator[Session]:
    """Attach a probe after those that stand before it in the registry, whose maps it may share."""
    before = list(EVERY)[: list(EVERY).index(name)]
    session = Session([EVERY[one]() for one in (*before, name)])
    try:
        session.start()
        yield session
    finally:
        session.stop()


def require_on(session: Session, name: str) -> None:
    """Skip where this machine does not have what the probe needs; it must say so."""
    slot = session.slots[name]
    if slot.state in {State.NOT_SUPPORTED, State.OFF}:
        assert slot.reason
        pytest.skip(f"needs {name}: {slot.reason}")
    assert (slot.state, slot.reason) == (State.ON, "")


@every_probe
def test_compiled_object_exists(name: str) -> None:
    """A probe is found under the name of its compiled object."""
    assert EVERY[name]().name == name
    assert (BUILT / f"{name}.bpf.o").exists()


@every_probe
def test_is_documented(name: str) -> None:
    """The package's README names every probe."""
    assert f"`{name}`" in (BUILT.parent / "README.md").read_text()


@every_probe
def test_attaches_reads_and_loads_programs(name: str) -> None:
    """Attached, it has programs in the kernel and hands over counters that are numbers."""
    with attached_with_what_it_needs(name) as session:
        require_on(session, name)
        readings = session.read()[name]
        programs = session.programs()[name]
    assert programs
    assert readings.events >= 0
    assert all(count >= 0 for count in readings.dropped.values())
    for reading in readings.series:
        if isinstance(reading.value, float):
            assert math.isfinite(reading.value)
            assert reading.value >= 0
        else:
            assert reading.value.sum_s >= 0
            assert min(reading.value.slots) >= 0


@every_probe
def test_series_are_told_apart_by_their_labels(name: str) -> None:
    """No two series of one reading have the same metric and labels, cgroups without a name apart."""
    with attached_with_what_it_needs(name) as session:
        require_on(session, name)
        series = session.read()[name].series
    named = [one for one in series if "other" not in one.labels.values()]
    keys = [(one.metric, *sorted(one.labels.items())) for one in named]
    assert sorted(keys) == sorted(set(keys))


@every_probe
def test_counters_do_not_fall(name: str) -> None:
    """What is read later is no less."""
    with attached_with_what_it_needs(name) as session:
        require_on(session, name)
        first, second = session.read()[name], session.read()[name]
    assert second.events >= first.events
    assert all(second.dropped[reason] >= count for reason, count in first.dropped.items())


@every_probe
def test_detach_leaves_nothing_behind(name: str) -> None:
    """Attached and detached twice: no program, map, link or pin of it is left, and no descriptor of ours."""
    files, pinned = bpf_files(), pins()
    for _ in range(2):
        programs, maps = program_ids(), map_ids()
        with attached_with_what_it_needs(name) as session:
            require_on(session, name)
            programs, maps = program_ids() - programs, map_ids() - maps
            session.detach(name)
            session.detach(name)
            library = session.library
        assert library is not None
        assert programs
        assert still_loaded(library, programs, maps) == []
        assert bpf_files() == files
        assert pins() <= pinned


@every_probe
def test_attaches_again(name: str) -> None:
    """A probe that was detached can be attached again in the same session."""
    with attached_with_what_it_needs(name) as session:
        require_on(session, name)
        session.detach(name, State.SHED, "too costly")
        shed = session.slots[name].state
        again = session.attach(name)
        readings = session.read()
    assert (shed, again) == (State.SHED, State.ON)
    assert name in readings


@every_probe
def test_instruction_budget(name: str) -> None:
    """No program has grown past its budget of verified instructions; a new one is added to the table."""
    with attached_with_what_it_needs(name) as session:
        require_on(session, name)
        assert session.library is not None
        counted = {
            f"{name}/{program}": progstats.read(session.library, fd).instructions
            for program, fd in session.programs()[name].items()
        }
    over = {key: count for key, count in counted.items() if count > BUDGETS.get(key, 0)}
    assert over == {}
