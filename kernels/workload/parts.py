"""Puts a server together from its settings, and warms it up."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ebpf.hook.library import SpanLibrary
from kernels.errors import WorkloadError
from kernels.workload.clock import Clock
from kernels.workload.completions import Service
from kernels.workload.engine import Engine, Limits, Ports
from kernels.workload.generation import Event, Generation
from kernels.workload.metrics import Metrics
from kernels.workload.model import ModelSpec, cached_model
from kernels.workload.onnx_backend import OnnxBackend
from kernels.workload.prompt_cache import PromptCache
from kernels.workload.scheduler import POLICIES
from kernels.workload.settings import Settings
from kernels.workload.spans import StepSpans
from kernels.workload.tenants import TenantDirectory, tenant_database
from kernels.workload.tokenizer import encode
from kernels.workload.tracing import Identity, Tracing

WARM_PROMPT_TOKENS = (16, 40, 64, 96, 128)
WARM_TOKENS = 4


@dataclass(frozen=True)
class Files:
    """What is built on disk before a server starts."""

    model: Path
    tenants: Path


def spec_of(settings: Settings) -> ModelSpec:
    """Return the model that the settings describe."""
    return ModelSpec(
        settings.layers, settings.hidden, settings.heads, settings.context, settings.seed
    )


def prepare(settings: Settings, cache_dir: Path) -> Files:
    """Build the model and the tenant database unless they are there."""
    return Files(
        model=cached_model(spec_of(settings), cache_dir),
        tenants=tenant_database(cache_dir, settings.sql_rows, settings.tenant_index),
    )


def assemble(
    settings: Settings,
    files: Files,
    identity: Identity,
    tracing: Tracing,
    failed: Callable[[], None],
) -> Service:
    """Wire the parts up in a running event loop; the engine is not started yet."""
    clock = Clock()
    library = SpanLibrary()
    ports = Ports(
        backend=OnnxBackend(files.model, spec_of(settings), settings.max_running),
        policy=POLICIES[settings.batching](settings),
        clock=clock,
        observer=StepSpans(tracing, clock, library),
        deliver=_deliver_in(asyncio.get_running_loop()),
        failed=failed,
    )
    return Service(
        model=identity.model,
        context=settings.context,
        kv_tokens=settings.kv_tokens,
        max_admitted=settings.max_running + settings.max_queue,
        engine=Engine(ports, Limits(settings.max_running, settings.max_queue, settings.kv_tokens)),
        tenants=TenantDirectory(files.tenants, settings.sql_threads, library),
        cache=PromptCache(settings.prompt_cache),
        metrics=Metrics(identity.model),
        tracer=tracing.tracer,
        ids=tracing.ids,
        clock=clock,
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
    for width in WARM_PROMPT_TOKENS:
        prompt = encode("w" * (width - 1))
        if len(prompt) + WARM_TOKENS <= context:
            await asyncio.gather(*(_generate(service.engine, prompt) for _ in range(wave)))
    await asyncio.gather(
        *(service.tenants.find("tenant-0000") for _ in range(settings.sql_threads))
    )


async def _generate(engine: Engine, prompt: list[int]) -> None:
    inbox: asyncio.Queue[Event] = asyncio.Queue()
    engine.submit(Generation(prompt, WARM_TOKENS, inbox.put_nowait))
    while True:
        event = await inbox.get()
        if event.failed:
            raise WorkloadError("the engine failed while warming up: see the log above")
        if event.finish:
            return
