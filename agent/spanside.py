"""Puts the agent's span side together: receivers, the stages that spans pass through, and what they count."""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.config import Config
from agent.enrich import Enricher
from agent.inflight import InFlight
from agent.intake import Annotate, Intake, Stages
from agent.listen import Listener, cannot_listen
from agent.otlp.access import Access, access, warn_if_open
from agent.otlp.admission import Admission
from agent.otlp.codec import Signal
from agent.otlp.grpc_receiver import GrpcReceiver
from agent.otlp.receiver import Receiver
from agent.otlp.sender import Sender
from agent.redact.redactor import Redactor
from agent.sampling.sampler import Rules, Sampler
from agent.spanmetrics import SpanMetrics
from agent.telemetry.keys import CODE, PIPE, REASON, TRANSPORT
from agent.telemetry.model import Sample

_log = logging.getLogger(__name__)

OTLP_PORT, GRPC_PORT = "otlp_port", "otlp_grpc_port"
_PIPE = "intake"
_DROPPED = "tailcause.pipe.dropped"
_TICK_S = 0.5


class SpanSide:
    """Listens for OTLP over HTTP and gRPC; both lead to one intake."""

    def __init__(self, config: Config, granted: Access, intake: Intake) -> None:
        self._config = config
        self._access = granted
        self._intake = intake
        self._receiver = Receiver(intake.accept, access=granted)
        self._grpc = GrpcReceiver(self._receiver.admission, granted)
        tls = granted.tls.context() if granted.tls is not None else None
        self._listener = Listener(self._receiver.routes(), config.listen, tls)
        self._start_unix_ns = time.time_ns()

    async def start(self, group: asyncio.TaskGroup, ports: dict[str, int]) -> None:
        """Listen, and say on which ports; raises `CannotStartError`."""
        config = self._config
        warn_if_open(config.listen, self._access)
        ports[OTLP_PORT] = await self._listener.start(config.otlp_port, "--otlp-port")
        if config.grpc_port is not None:
            await self._start_grpc(config.grpc_port, ports)
        self._ticking = group.create_task(self._tick_for_ever())

    async def _start_grpc(self, port: int, ports: dict[str, int]) -> None:
        host = self._config.listen
        try:
            ports[GRPC_PORT] = await self._grpc.start(host, port)
        except ModuleNotFoundError:
            _log.warning(
                "event=otlp_grpc_off why='grpcio is not installed' lost='OTLP over gRPC' next=%r",
                "pip install 'tailcause[agent]', or give --otlp-grpc-port off",
            )
        except OSError as exc:
            await self._listener.stop()
            raise cannot_listen(exc, host, port, "--otlp-grpc-port") from exc

    async def stop(self) -> None:
        """Stop listening and hand over what is held."""
        await asyncio.gather(self._listener.stop(), self._grpc.stop())
        self._ticking.cancel()
        if self._intake.stages.sampler is not None:
            self._intake.stages.sampler.flush()

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            if self._intake.stages.sampler is not None:
                self._intake.stages.sampler.tick()

    def change(self, config: Config, sender: Sender | None) -> None:
        """Follow the settings `redact`, `sample_rest` and `sample_wait`, and send to this sender from now on."""
        intake = self._intake
        stages = follow(intake, config, sends=sender is not None)
        intake.stages, intake.sender = stages, sender

    def own_samples(self) -> list[Sample]:
        """Return what the receivers and the stages count."""
        admission, stages = self._receiver.admission, self._intake.stages
        samples = _of_admission(admission, self._start_unix_ns)
        if refused := self._listener.refused:
            keys = {PIPE: _PIPE, REASON: "too_many_connections"}
            now = time.time_ns()
            samples.append(Sample(_DROPPED, refused, now, keys, self._start_unix_ns))
        for stage in (stages.metrics, stages.in_flight, stages.redactor, stages.sampler):
            if stage is not None:
                samples.extend(stage.own_samples())
        return samples


def _of_admission(admission: Admission, start_unix_ns: int) -> list[Sample]:
    now = time.time_ns()

    def counter(metric: str, count: int, keys: Mapping[str, str]) -> Sample:
        return Sample(metric, count, now, keys, start_unix_ns)

    answers = [
        counter("tailcause.otlp.requests", count, {TRANSPORT: transport, CODE: code})
        for (transport, code), count in admission.answers.items()
    ]
    answers.append(counter("tailcause.otlp.duplicates", admission.duplicates, {}))
    return answers + [
        counter(_DROPPED, count, {PIPE: _PIPE, REASON: reason})
        for reason, count in admission.rejected.items()
    ]


@dataclass(frozen=True)
class Around:
    """What the span side works with."""

    enricher: Enricher
    sender: Sender | None
    annotate: Annotate


def follow(intake: Intake, config: Config, *, sends: bool) -> Stages:
    """Return the stages of an intake as the settings want them; what goes on keeps its counts and what it holds."""
    stages = intake.stages
    redactor = (stages.redactor or Redactor()) if config.redact else None
    return replace(stages, redactor=redactor, sampler=_sampler(intake, config, sends=sends))


def _sampler(intake: Intake, config: Config, *, sends: bool) -> Sampler | None:
    sampler = intake.stages.sampler
    if config.sample_rest == 1 or not sends:
        if sampler is not None:
            sampler.flush()
        return None
    rules = Rules(config.sample_rest, config.sample_wait)
    if sampler is not None:
        sampler.follow(rules)
        return sampler

    def emit(body: bytes, items: int) -> None:
        if intake.sender is not None:
            intake.sender.offer(Signal.TRACES, body, items)

    return Sampler(rules, emit)


def build(config: Config, around: Around) -> SpanSide:
    """Put it together; nothing listens yet. Raises `CannotStartError` for a token or certificate that cannot be used."""
    stages = Stages(
        enricher=around.enricher,
        annotate=around.annotate,
        metrics=SpanMetrics(),
        in_flight=InFlight(),
    )
    intake = Intake(stages, around.sender)
    intake.stages = follow(intake, config, sends=around.sender is not None)
    granted = access(
        config.tls_cert, config.tls_key, config.tls_client_ca, config.bearer_token_file
    )
    return SpanSide(config, granted, intake)
