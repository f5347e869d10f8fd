"""The served model as a process on a core of its own: started, scraped, and what it uses."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.bench.agent_process import FailedError, get
from tests.bench.ebpf_end_to_end import cpu_seconds

ROWS = 16
CONTEXT = 1024
_STOP_S = 20.0
_ALIKE = {
    "context": str(CONTEXT),
    "max_running": str(ROWS),
    "kv_tokens": str(ROWS * CONTEXT),
    "max_queue": "1000",
    "prompt_cache": "0",
    "prefix_cache": "off",
}
"""KV for every row at its longest, so that no policy waits for KV; a queue that refuses nobody; no caches."""
PLAIN = {"OTEL_SDK_DISABLED": "true", "TAILCAUSE_SPAN_LIBRARY": "/nonexistent"}
"""Without spans (OpenTelemetry specification, SDK environment variables) and without the hook's library."""


@dataclass(frozen=True)
class Variant:
    """How a server differs from the others; `folder` keeps the built model and the log."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    otlp_url: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Server:
    """A server that is warm."""

    url: str
    pid: int

    def cpu_s(self) -> float:
        """Read the CPU time of all its threads."""
        return cpu_seconds(self.pid)

    def counted(self) -> dict[str, float]:
        """Read its counters, the samples of a name added up."""
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(get(f"{self.url}/metrics")):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found


def cores() -> tuple[int, int]:
    """Return the core of the servers and that of the clients. Raises `FailedError` where there is one alone."""
    have = sorted(os.sched_getaffinity(0))
    if len(have) < 2:
        raise FailedError("needs two CPUs: one for the server, one for its clients")
    return have[0], have[-1]


@contextmanager
def serving(core: int, variant: Variant) -> Iterator[Server]:
    """Run a server on one core; it is killed at the end when it does not stop by itself."""
    pairs = {**_ALIKE, **variant.settings}.items()
    words = [word for key, value in pairs for word in ("--set", f"{key}={value}")]
    where = ("--port", "0", "--cache", str(variant.folder), "--otlp", variant.otlp_url)
    command = ("taskset", "-c", str(core), sys.executable, "-m", "kernels.cli", "serve")
    log = variant.folder / "server.log"
    with log.open("a") as errors:
        process = subprocess.Popen(
            (*command, *where, *words),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **variant.environment},
        )
        try:
            yield _ready(process, log)
        finally:
            _stop(process)


def _ready(process: "subprocess.Popen[str]", log: Path) -> Server:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise FailedError(f"the server did not start: {log.read_text()[-500:]}")
    return Server(f"http://127.0.0.1:{json.loads(line)['port']}", process.pid)


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.communicate(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@contextmanager
def all_serving(core: int, variants: Sequence[Variant]) -> Iterator[list[Server]]:
    """Run several servers on one core, to be asked in turns."""
    with ExitStack() as running:
        yield [running.enter_context(serving(core, variant)) for variant in variants]
