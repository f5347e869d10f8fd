"""Puts a server together from its settings, and warms it up."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ebpf.hook.library import SpanLibrary
from kernels.errors import WorkloadError
from kernels.workload.adapters import AdapterPlan, Adapters, adapter_folder
from kernels.workload.answers import Patience
from kernels.workload.backend import Backend
from kernels.workload.bodies import Bodies, BodyLimits
from kernels.workload.clock import Clock
from kernels.workload.completions import Service
from kernels.workload.disturbances import Pace, PacedBackend
from kernels.workload.engine import Engine, Ports
from kernels.workload.generation import Event, Generation, Task
from kernels.workload.kv_blocks import BLOCK_TOKENS
from kernels.workload.metrics import Metrics
from kernels.workload.model import ModelSpec, cached_model
from kernels.workload.onnx_backend import OnnxBackend
from kernels.workload.places import Places
from kernels.workload.planner import Limits
from kernels.workload.scheduler import POLICIES
from kernels.workload.settings import Settings
from kernels.workload.spans import StepSpans
from kernels.workload.stores import make_lookups, prepare_tenants
from kernels.workload.tokenizer import encode
from kernels.workload.tracing import Identity, Tracing
from kernels.workload.weights_file import trained

WARM_PROMPT_TOKENS = (16, 40, 64, 96, 128)
WARM_TOKENS = 4


@dataclass(frozen=True)
class Files:
    """What is built on disk before a server starts."""

    model: Path
    tenants: Path | None
    adapters: Path | None = None


def spec_of(settings: Settings) -> ModelSpec:
    """Return the model that the settings describe."""
    return ModelSpec(
        settings.layers, settings.hidden, settings.heads, settings.context, settings.seed
    )


def prepare(settings: Settings, cache_dir: Path) -> Files:
    """Build the model and the tenant database unless they are there."""
    spec = spec_of(settings)
    weights = trained(Path(settings.weights), spec) if settings.weights else None
    return Files(
        model=cached_model(spec, cache_dir, weights),
        tenants=prepare_tenants(settings, cache_dir),
        adapters=adapter_folder(cache_dir, adapter_plan(settings)),
    )


def adapter_plan(settings: Settings) -> AdapterPlan:
    """Return the adapters that the settings describe."""
    return AdapterPlan(settings.adapters, settings.adapter_kib, settings.adapter_direct)


@dataclass(frozen=True)
class Owner:
    """The process of a service: where its spans go, who hears of a failure, and the pace of a hook."""

    tracing: Tracing
    failed: Callable[[], None]
    pace: Pace | None = None


def assemble(settings: Settings, files: Files, identity: Identity, owner: Owner) -> Service:
    """Wire the parts up in a running event loop; the engine is not started yet."""
    clock = Clock()
    library = SpanLibrary()
    metrics = Metrics(identity.model)
    ports = Ports(
        backend=_backend(settings, files.model, owner.pace),
        policy=POLICIES[settings.batching](settings),
        clock=clock,
        observer=StepSpans(owner.tracing, clock, library),
        count=metrics.count_step,
        deliver=_deliver_in(asyncio.get_running_loop()),
        failed=owner.failed,
    )
    return Service(
        model=identity.model,
        context=settings.context,
        max_in_flight=settings.max_in_flight,
        patience=Patience(settings.send_buffer_bytes, settings.client_wait_s),
        places=Places(settings.max_running + settings.max_queue),
        bodies=Bodies(BodyLimits(settings.max_body_bytes)),
        engine=Engine(ports, _limits(settings)),
        adapters=_adapters(settings, files.adapters, library),
        lookups=make_lookups(settings, files.tenants, files.model.stem, library, metrics),
        metrics=metrics,
        tracer=owner.tracing.tracer,
        ids=owner.tracing.ids,
        clock=clock,
    )


def _backend(settings: Settings, model: Path, pace: Pace | None) -> Backend:
    blocks = settings.kv_tokens // BLOCK_TOKENS if settings.prefix_cache else 0
    backend = OnnxBackend(model, spec_of(settings), settings.max_running, blocks)
    return PacedBackend(backend, pace) if pace else backend


def _adapters(settings: Settings, folder: Path | None, library: SpanLibrary) -> Adapters | None:
    return Adapters(folder, adapter_plan(settings), library) if folder else None


def _limits(settings: Settings) -> Limits:
    return Limits(
        max_running=settings.max_running,
        max_queue=settings.max_queue,
        kv_tokens=settings.kv_tokens,
        step_tokens=settings.step_tokens,
        step_first=settings.step_first,
        prefill_order=settings.prefill_order,
        prefix_cache=settings.prefix_cache,
    )


def _deliver_in(loop: asyncio.AbstractEventLoop) -> Callable[[Sequence[Event]], None]:
    """Hand events from the engine's thread to their sinks in the loop, one wake-up per step."""

    def dispatch(events: Sequence[Event]) -> None:
        for event in events:
            event.generation.sink(event)

    def deliver(events: Sequence[Event]) -> None:
        loop.call_soon_threadsafe(dispatch, events)

    return deliver


async def warm_up(service: Service, settings: Settings) -> None:
    """Run every batch size once and open every database connection, so that nobody pays for it later."""
    wave = min(settings.max_running, settings.max_queue + 1)
    context = min(settings.context, settings.kv_tokens)
    letters = itertools.cycle(
        map(chr, range(33, 127))
    )  # none begins like another: all are computed
    for width in WARM_PROMPT_TOKENS:
        if width + WARM_TOKENS <= context:
            prompts = [encode(next(letters) * (width - 1)) for _ in range(wave)]
            await asyncio.gather(*(_generate(service.engine, prompt) for prompt in prompts))
    await service.lookups.open()


async def _generate(engine: Engine, prompt: list[int]) -> None:
    inbox: asyncio.Queue[Event] = asyncio.Queue()
    engine.submit(Generation(Task(prompt, WARM_TOKENS), inbox.put_nowait))
    while True:
        event = await inbox.get()
        if event.failed:
            raise WorkloadError("the engine failed while warming up: see the log above")
        if event.finish:
            return
