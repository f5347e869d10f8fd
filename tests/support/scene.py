"""A small simulated inference server, for tests of root-cause analysis alone.

It stands in for the real workload where a test needs an exactly known truth: Poisson arrivals, a tenant look-up,
a queue, and an engine with continuous batching whose CPU time is stretched by a CFS quota period by period.
It yields the spans and points that the real workload and agent would send. The end-to-end tests use the real ones.
"""

import random
from dataclasses import dataclass, field, replace

from agent.telemetry import keys
from agent.telemetry.model import Attributes, Link, Point, Span, SpanKind, SpanStatus
from detector.model import Incident, SeriesKey, Signal, Snapshot

EPOCH_S = 1_700_000_000.0
CGROUP = "/pods/chat"
BYSTANDER = "/pods/batch"
NEIGHBOUR, IDLE_CORE_NEIGHBOUR = "/pods/report", "/pods/cron"
PERIOD_S = 0.1
OLD, NEW = "a" * 40, "b" * 40


@dataclass(frozen=True)
class Scene:
    """What happens: times in seconds after the start, `onset_s` is when the incident begins."""

    seed: int = 1
    length_s: float = 74.0
    onset_s: float = 60.0
    rate: float = 20.0
    surge: float = 1.0
    prompt_growth: float = 1.0
    quota: float | None = None
    revision_at_s: float | None = None
    sql_s: float = 0.001
    new_sql_s: float | None = None
    neighbour: float = 0.0
    bystander_throttled: float = 0.0
    matrix: bool = False
    idle_core_neighbour: float = 0.0
    metrics: bool = True
    with_cgroup: bool = True
    with_steps: bool = True
    max_running: int = 8


@dataclass
class _Request:
    arrived_s: float
    prompt: int
    left: int
    trace_id: str
    queued_s: float = 0.0
    scheduled_s: float = 0.0
    first_s: float = 0.0
    end_s: float = 0.0
    output: int = 0
    pending_prompt: bool = True


@dataclass
class _Cpu:
    """The server's CPU under CFS bandwidth control, and its counters."""

    scene: Scene
    used: dict[int, float] = field(default_factory=dict)
    throttled: list[tuple[float, float]] = field(default_factory=list)
    busy: list[tuple[float, float]] = field(default_factory=list)

    def run(self, start_s: float, cpu_s: float) -> float:
        """Return when `cpu_s` of work that starts at `start_s` is done."""
        now, left = start_s, cpu_s
        while left > 1e-12:
            period = int(now / PERIOD_S)
            limited = self.scene.quota is not None and now >= self.scene.onset_s
            speed = 1.0 - (self.scene.neighbour if now >= self.scene.onset_s else 0.0)
            end = (period + 1) * PERIOD_S
            room = (
                self.scene.quota * PERIOD_S - self.used.get(period, 0.0)
                if limited and self.scene.quota
                else 9e9
            )
            if room <= 1e-9:
                self.throttled.append((now, end))
                now = end + 1e-6  # past the boundary, whatever the rounding
                continue
            step = min(left, room, (end - now) * speed)
            self.used[period] = self.used.get(period, 0.0) + step
            self.busy.append((now, step))
            now, left = now + step / speed + 1e-9, left - step
        return now


def snapshot(scene: Scene) -> Snapshot:
    """Play a scene and return what the detector would hand to the analysis."""
    rng = random.Random(scene.seed)
    cpu = _Cpu(scene)
    requests = _arrivals(scene, rng)
    steps = _serve(scene, requests, cpu)
    spans = [span for request in requests if request.end_s for span in _spans(scene, request)]
    if scene.with_steps:
        spans += [_step_span(scene, index, *step) for index, step in enumerate(steps)]
    return Snapshot(
        incident=_incident(scene),
        end_unix_s=EPOCH_S + scene.length_s,
        spans=tuple(span for span in spans if span.end_unix_ns < (EPOCH_S + scene.length_s) * 1e9),
        points=tuple(_points(scene, cpu)) if scene.metrics else (),
    )


def throttled_s(scene: Scene) -> float:
    """Return the true throttled seconds of a scene, over all of it."""
    cpu = _Cpu(scene)
    _serve(scene, _arrivals(scene, random.Random(scene.seed)), cpu)
    return sum(
        min(end, scene.length_s) - start for start, end in cpu.throttled if start < scene.length_s
    )


def shifted(snap: Snapshot, onset_s: float) -> Snapshot:
    """Return the snapshot with another onset, seconds after the start."""
    return Snapshot(
        _incident(replace(Scene(), onset_s=onset_s)),
        snap.end_unix_s,
        snap.spans,
        snap.points,
        snap.dropped,
    )


def _arrivals(scene: Scene, rng: random.Random) -> list[_Request]:
    found, now = [], 0.0
    while now < scene.length_s:
        hot = now >= scene.onset_s
        now += rng.expovariate(scene.rate * (scene.surge if hot else 1.0))
        prompt = int(
            rng.lognormvariate(4.1, 0.3) * (scene.prompt_growth if now >= scene.onset_s else 1.0)
        )
        output = max(2, int(rng.lognormvariate(2.5, 0.3)))
        found.append(_Request(now, prompt, output, f"{rng.getrandbits(128):032x}", output=output))
    return found


def _serve(
    scene: Scene, requests: list[_Request], cpu: _Cpu
) -> list[tuple[float, float, list[_Request], int]]:
    """Run the look-ups (two workers) and the engine; fills the requests in and returns the steps."""
    workers = [0.0, 0.0]
    for request in requests:
        slot = workers.index(min(workers))
        slow = scene.new_sql_s is not None and _revision(scene, request.arrived_s) == NEW
        cost = scene.new_sql_s if slow and scene.new_sql_s is not None else scene.sql_s
        workers[slot] = max(workers[slot], request.arrived_s) + cost
        request.queued_s = workers[slot]
    waiting = sorted(requests, key=lambda request: request.queued_s)
    running: list[_Request] = []
    steps, now = [], 0.0
    while waiting or running:
        if not running:
            now = max(now, waiting[0].queued_s)
        while waiting and waiting[0].queued_s <= now and len(running) < scene.max_running:
            request = waiting.pop(0)
            request.scheduled_s = now
            running.append(request)
        prefill = next((request for request in running if request.pending_prompt), None)
        batch = [prefill] if prefill else list(running)
        tokens = prefill.prompt if prefill else 0
        end = cpu.run(now, 0.0015 + 0.00012 * tokens + 0.0006 * (0 if prefill else len(batch)))
        steps.append((now, end, batch, tokens))
        _progress(batch, end)
        running = [request for request in running if not request.end_s]
        now = end
    return steps


def _progress(batch: list[_Request], end_s: float) -> None:
    for request in batch:
        if request.pending_prompt:
            request.pending_prompt = False
            request.first_s = end_s
        request.left -= 1
        if request.left == 0:
            request.end_s = end_s


def _revision(scene: Scene, at_s: float) -> str:
    return NEW if scene.revision_at_s is not None and at_s >= scene.revision_at_s else OLD


def _resource(scene: Scene, revision: str) -> Attributes:
    version = "1.1.0" if revision == NEW else "1.0.0"
    found: dict[str, str] = {
        keys.SERVICE_NAME: "chat", keys.SERVICE_VERSION: version,
        keys.REVISION: revision, keys.SERVICE_INSTANCE_ID: "chat-0",
    }  # fmt: skip
    return found | {keys.CGROUP: CGROUP} if scene.with_cgroup else found


def _spans(scene: Scene, request: _Request) -> list[Span]:
    resource = _resource(scene, _revision(scene, request.arrived_s))
    root = _span(
        request.trace_id,
        "0" * 15 + "1",
        "",
        "POST /v1/completions",
        request.arrived_s,
        request.end_s,
        resource,
    )
    root = replace_span(
        root,
        {
            keys.GEN_AI_MODEL: "tiny", keys.GEN_AI_INPUT_TOKENS: request.prompt,
            keys.GEN_AI_OUTPUT_TOKENS: request.output, "http.response.status_code": 200,
        },
    )  # fmt: skip
    parts = (
        ("sql SELECT tenants", request.arrived_s, request.queued_s),
        ("queue", request.queued_s, request.scheduled_s),
        ("prefill", request.scheduled_s, request.first_s),
        ("decode", request.first_s, request.end_s),
    )
    children = [
        _span(request.trace_id, f"{index:016x}", root.span_id, name, start, end, resource)
        for index, (name, start, end) in enumerate(parts, start=2)
    ]
    return [root, *children]


def replace_span(span: Span, attributes: Attributes) -> Span:
    """Return a server span with attributes."""
    return Span(
        span.trace_id, span.span_id, span.parent_span_id, span.name, SpanKind.SERVER, span.start_unix_ns,
        span.end_unix_ns, SpanStatus.UNSET, attributes, (), span.resource,
    )  # fmt: skip


def _span(
    trace: str,
    span: str,
    parent: str,
    name: str,
    start_s: float,
    end_s: float,
    resource: Attributes,
) -> Span:
    return Span(
        trace, span, parent, name, SpanKind.INTERNAL, int((EPOCH_S + start_s) * 1e9), int((EPOCH_S + end_s) * 1e9),
        resource=resource,
    )  # fmt: skip


def _step_span(
    scene: Scene, index: int, start_s: float, end_s: float, batch: list[_Request], tokens: int
) -> Span:
    span = _span(
        f"{index:032x}", f"{index:016x}", "", "engine step", start_s, end_s, _resource(scene, OLD)
    )
    work = {
        "tailcause.step.batch_size": len(batch), "tailcause.step.prefill_tokens": tokens,
        "tailcause.step.decode_tokens": 0 if tokens else len(batch), "tailcause.step.context_tokens": 0,
    }  # fmt: skip
    return Span(
        span.trace_id, span.span_id, "", span.name, SpanKind.INTERNAL, span.start_unix_ns, span.end_unix_ns,
        SpanStatus.UNSET, work, tuple(Link(request.trace_id, "0" * 15 + "1") for request in batch), span.resource,
    )  # fmt: skip


def _points(scene: Scene, cpu: _Cpu) -> list[Point]:
    found: list[Point] = []
    for second in range(int(scene.length_s) + 1):
        time_ns = int((EPOCH_S + second) * 1e9)
        throttled = sum(min(end, second) - start for start, end in cpu.throttled if start < second)
        used = sum(step for start, step in cpu.busy if start < second)
        after = max(second - scene.onset_s, 0.0)
        stolen = after * scene.neighbour
        for cgroup, value in ((CGROUP, throttled), (BYSTANDER, scene.bystander_throttled * second)):
            found.append(
                _counter(
                    "tailcause.cgroup.cpu.cfs.throttled_time",
                    value,
                    time_ns,
                    {keys.CGROUP: cgroup},
                )
            )
        if scene.matrix:
            for aggressor, waited in (
                (NEIGHBOUR, stolen),
                (CGROUP, 0.02 * second),
                ("idle", 0.001 * second),
            ):
                labels = {keys.CGROUP: CGROUP, "tailcause.aggressor.path": aggressor}
                found.append(_counter("tailcause.runqueue.wait_on.time", waited, time_ns, labels))
        for cgroup, cpus in (
            (NEIGHBOUR, scene.neighbour),
            (IDLE_CORE_NEIGHBOUR, scene.idle_core_neighbour),
        ):
            found.append(
                _counter("container.cpu.time", cpus * after, time_ns, {keys.CGROUP: cgroup})
            )
        found.append(_counter("container.cpu.time", used, time_ns, {keys.CGROUP: CGROUP}))
        found.append(_counter("system.cpu.time", used + stolen, time_ns, {keys.CPU_MODE: "user"}))
        for resource, value in (("cpu", throttled + stolen), ("memory", 0.0), ("io", 0.0)):
            labels = {keys.CGROUP: CGROUP, keys.PSI_RESOURCE: resource, keys.PSI_STALL: "some"}
            found.append(_counter("tailcause.cgroup.psi.time", value, time_ns, labels))
    return found


def _counter(metric: str, value: float, time_ns: int, labels: Attributes) -> Point:
    return Point(metric, value, time_ns, labels, {keys.HOST_NAME: "node-1"}, cumulative=True)


def _incident(scene: Scene) -> Incident:
    key = SeriesKey("chat", "tiny", "", Signal.E2E)
    onset = EPOCH_S + scene.onset_s
    return Incident("inc-00000001", "chat", "tiny", onset, onset + 6, 2.0, (key,), (), {}, EPOCH_S)
