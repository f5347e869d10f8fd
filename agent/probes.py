"""The eBPF probes inside the agent: which ones run, who touches them when, and what they cost the agent.

A session of probes is not safe for threads: everything here goes through one lock. The collector reads on its own
thread; the event loop polls for finished spans; the governor and `off` detach.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from agent.host.paths import DEFAULT_PROCFS, HostPaths
from agent.probelist import FOUNDATION, NEED_FOUNDATION, Metered, ProbeSettings, build
from agent.telemetry.keys import PROBE, PROBE_STATE, REASON
from agent.telemetry.model import Sample
from ebpf import progstats
from ebpf.errors import EbpfError
from ebpf.libbpf import Library
from ebpf.probes.span import SpanProbe, SpanWaits
from ebpf.probes.waits import Waits
from ebpf.reading import Readings
from ebpf.session import Session, State

_log = logging.getLogger(__name__)

MAX_WATCHED = 256
_BOOT_ID = "sys/kernel/random/boot_id"


@dataclass(frozen=True)
class ProbeStatus:
    """How one probe fares."""

    state: State
    reason: str = ""
    attached_unix_ns: int = 0
    """Since when it counts; 0: it does not."""


@dataclass
class _Run:
    """What is known of one probe beyond its session slot."""

    attached_unix_ns: int = 0
    events: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Spell:
    """What the kernel counted of a probe's programs in a short spell."""

    runs: int
    time_ns: int


@dataclass
class Probes:
    """All probes of this agent; nothing happens before `start`, and `off` is final."""

    settings: ProbeSettings
    deliver: Callable[[SpanWaits], None] = lambda _: None
    paths: HostPaths = field(default_factory=HostPaths)
    now_unix_ns: Callable[[], int] = time.time_ns

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._session: Session | None = None
        self._metered: Mapping[str, Metered] = {}
        self._span: SpanProbe | None = None
        self._waits: Waits | None = None
        self._runs: dict[str, _Run] = {}
        self._counted_s = 0.0
        self._final = False
        self._gone: dict[str, set[str]] = {}
        self._pids: frozenset[int] = frozenset(self.settings.watch)
        self._off_reason = "" if self.settings.enabled else self.settings.why_off

    def start(self) -> bool:
        """Attach all probes, once; False when they are switched off."""
        with self._lock:
            if self._off_reason:
                return False
            if self._session is None:
                self._start()
            return True

    def foreign_kernel(self) -> str:
        """Say why the configured procfs rules probes out: they run in the kernel that runs the agent."""
        try:
            theirs = (self.paths.procfs / _BOOT_ID).read_text()
        except OSError:
            return f"{self.paths.procfs} is not this kernel's procfs"
        ours = (DEFAULT_PROCFS / _BOOT_ID).read_text()
        return "" if theirs == ours else f"{self.paths.procfs} belongs to another kernel"

    def _start(self) -> None:
        probes = build(self.settings, self.deliver)
        session = Session(probes, proc=self.paths.procfs)
        session.start()
        self._metered = {probe.name: probe for probe in probes}
        self._span = next((p.probe for p in probes if isinstance(p.probe, SpanProbe)), None)
        self._waits = next((p.probe for p in probes if isinstance(p.probe, Waits)), None)
        self._runs = {name: _Run() for name in session.slots}
        self._session = session  # from here on the others see it
        self._note_attached(self._runs)
        session.watch(self._pids)

    def _note_attached(self, names: Iterable[str]) -> None:
        for name in names:
            if self._is_on(name):
                self._runs[name].attached_unix_ns = self.now_unix_ns()

    def _is_on(self, name: str) -> bool:
        session = self._session  # which may be another one, or none, a moment later
        slot = session.slots.get(name) if session is not None else None
        return slot is not None and slot.state is State.ON

    def read(self) -> Mapping[str, Readings]:
        """Read every attached probe."""
        with self._lock:
            if self._session is None or self._off_reason:
                return {}
            try:
                found = self._session.read()
            finally:
                self._counted_s = time.monotonic()
            for name, readings in found.items():
                self._runs[name].events = readings.events
                self._runs[name].dropped = readings.dropped
            return found

    def status(self) -> Mapping[str, ProbeStatus]:
        """Return how every probe fares; empty before the start."""
        session, runs = self._session, self._runs
        if session is None:
            return {}
        return {
            name: ProbeStatus(
                slot.state,
                slot.reason,
                runs[name].attached_unix_ns if slot.state is State.ON else 0,
            )
            for name, slot in list(session.slots.items())
            if name in runs
        }

    def own_samples(self) -> list[Sample]:
        """Return the state of every probe, and the events and losses of those that are on."""
        now = self.now_unix_ns()
        samples = []
        runs = self._runs
        for name, status in self.status().items():
            keys = {PROBE: name, PROBE_STATE: str(status.state)}
            samples.append(Sample("tailcause.probe.state", 1.0, now, keys))
            if status.state is State.ON and name in runs:
                samples += self._counters(runs[name], {PROBE: name}, now)
        return samples

    def _counters(self, run: _Run, keys: Mapping[str, str], now: int) -> Iterator[Sample]:
        start = run.attached_unix_ns
        yield Sample("tailcause.probe.events", run.events, now, keys, start)
        for reason, count in run.dropped.items():
            if count:
                lost = {**keys, REASON: reason}
                yield Sample("tailcause.probe.dropped", count, now, lost, start)

    async def settle(self) -> None:
        """Take in the spans that have finished; waits for a reading that is under way without blocking the loop."""
        if not self._lock.acquire(blocking=False):
            await asyncio.to_thread(self._poll_in_turn)
            return
        try:
            self._poll()
        finally:
            self._lock.release()

    def _poll_in_turn(self) -> None:
        with self._lock:
            self._poll()

    def _poll(self) -> None:
        if self._span is not None and self._is_on(self._span.name):
            begun_s = time.thread_time()
            with self._failing(self._span.name):
                self._span.poll()
            self._metered[self._span.name].own_s += time.thread_time() - begun_s

    def sample(self) -> bytes:
        """Return the threads of all watched processes as they are now (`ebpf.ring.Source`); empty without the probe."""
        with self._lock:
            if self._waits is None or not self._is_on(self._waits.name):
                return b""
            begun_s = time.thread_time()
            raw = b""
            with self._failing(self._waits.name):
                raw = self._waits.sample()
            self._metered[self._waits.name].own_s += time.thread_time() - begun_s
            return raw

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        """Turn trouble in reading a probe into its state: the others, and the agent, go on."""
        try:
            yield
        except (EbpfError, OSError) as exc:
            _log.warning("event=probe_failed probe=%s reason=%s", name, exc)
            if self._session is not None:
                self._session.detach(name, State.FAILED, str(exc))

    @property
    def samples_threads(self) -> bool:
        """Tell whether `sample` gives something, at once: not while a reading or an attachment is under way."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._waits is not None and self._is_on(self._waits.name)
        finally:
            self._lock.release()

    def watch(self, pids: Iterable[int]) -> None:
        """Keep the waits of all threads of these processes, beside those of the configuration."""
        wanted = frozenset([*self.settings.watch, *pids][:MAX_WATCHED])
        if wanted == self._pids:
            return
        self._pids = wanted
        with self._lock:
            if self._session is not None and not self._off_reason:
                with self._failing("waits"):
                    self._session.watch(wanted)

    def shed(self, name: str, reason: str) -> None:
        """Take a probe off for its cost, and before it those that read its counters."""
        with self._lock:
            if self._session is None:
                return
            gone = self._gone.setdefault(name, {name})
            for other in _with(name)[1:]:
                if other in self._session.slots and self._is_on(other):
                    gone.add(other)
                    self._session.detach(other, State.SHED, f"it needs {name}: {reason}")
            self._session.detach(name, State.SHED, reason)

    def restore(self, name: str, again_s: float) -> bool:
        """Put a probe that was shed back, and with it those that went before it.

        Where one of them fails, its state says why and that it is tried again after `again_s`.
        """
        with self._lock:
            if self._session is None or self._off_reason:
                return False
            gone = self._gone.get(name, {name})
            back = [one for one in self._session.slots if one in gone and not self._is_on(one)]
            for one in back:
                self._put_back(self._session, one, again_s)
            self._note_attached(back)
            with self._failing("waits"):
                self._session.watch(self._pids)
            if not all(map(self._is_on, gone)):
                return False
            self._gone.pop(name, None)
            return True

    def _put_back(self, session: Session, name: str, again_s: float) -> None:
        slot = session.slots[name]
        try:
            session.attach(name)
            why = slot.reason
        except OSError as exc:
            why = str(exc)
        if not self._is_on(name):
            slot.reason = f"{why}; it is tried again in {again_s:g} s"
            _log.debug("event=probe_not_back probe=%s reason=%r", name, slot.reason)

    def change(self, settings: ProbeSettings) -> None:
        """Follow other settings: what was attached goes, and what they want comes at the next collection.

        After `off` nothing comes.
        """
        with self._lock:
            if settings == self.settings:
                return
            self.settings = settings
            if self._final:
                return
            if self._session is not None:
                self._session.stop()
            self._session, self._span, self._waits = None, None, None
            self._metered, self._runs, self._gone = {}, {}, {}
            self._off_reason = "" if settings.enabled else settings.why_off

    def off(self, reason: str) -> Sequence[str]:
        """Detach everything, for good; return the probes that were on."""
        with self._lock:
            self._off_reason, self._final = reason, True
            if self._session is None:
                return []
            were_on = [name for name in self._session.slots if self._is_on(name)]
            self._session.stop()
            for slot in self._session.slots.values():
                slot.state, slot.reason = State.OFF, reason
            return were_on

    @property
    def started(self) -> bool:
        """Tell whether `start` has done its work, and `off` has not undone it."""
        return self._session is not None and not self._off_reason

    @property
    def off_reason(self) -> str:
        """Why there are no probes; empty while there may be some."""
        return self._off_reason

    def events(self) -> Mapping[str, int]:
        """Return how often each probe that is on ran, as of the last reading."""
        return {name: run.events for name, run in self._runs.items() if self._is_on(name)}

    def counted_s(self) -> float:
        """Return when that was, on the monotonic clock; 0 before the first reading."""
        return self._counted_s

    def memory_bytes(self) -> Mapping[str, int]:
        """Return what the maps of each probe that is on hold in the kernel, where that can be told."""
        found = {n: one.memory_bytes for n, one in list(self._metered.items()) if self._is_on(n)}
        return {name: held for name, held in found.items() if held is not None}

    def own_s(self) -> Mapping[str, float]:
        """Return the CPU time that reading each probe took the agent so far."""
        return {name: metered.own_s for name, metered in self._metered.items()}

    async def spell(self, length_s: float) -> Mapping[str, Spell]:
        """Let the kernel count for a moment what the programs cost; empty where it cannot."""
        library = self._session.library if self._session is not None else None
        if library is None or not any(map(self._is_on, self._metered)):
            return {}
        try:
            with progstats.enabled(library):
                before = self._counted(library)
                await asyncio.sleep(length_s)
                after = self._counted(library)
        except EbpfError:
            return {}
        return {
            name: Spell(spell.runs - before[name].runs, spell.time_ns - before[name].time_ns)
            for name, spell in after.items()
            if name in before
        }

    def _counted(self, library: Library) -> dict[str, Spell]:
        with self._lock:
            programs = self._session.programs() if self._session is not None else {}
            stats = {
                name: [progstats.read(library, fd) for fd in found.values()]
                for name, found in programs.items()
            }
        return {
            name: Spell(sum(one.runs for one in found), sum(one.time_ns for one in found))
            for name, found in stats.items()
        }


def _with(name: str) -> tuple[str, ...]:
    """Return a probe and those that go and come with it."""
    return (name, *NEED_FOUNDATION) if name == FOUNDATION else (name,)
