"""Lines that are really written to the kernel's log arrive at the back end as OTLP logs."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.logs.v1 import logs_pb2

from agent.host.kernel_events import KernelEvent, KernelEvents
from agent.host.kmsg import KMSG, KernelLog
from agent.http.server import Server
from agent.otlp.codec import Message, Signal
from agent.otlp.decode import attributes
from agent.otlp.receiver import Receiver, Verdict
from tests.support.kernel_workloads import Gated, cgroups
from tests.support.memory_cgroup import MemoryLimit, why_no_memory_limit
from tests.support.running_agent import agent

pytestmark = [
    pytest.mark.privileged,
    pytest.mark.skipif(os.geteuid() != 0, reason="writing to the kernel's log needs root"),
]

GROW = """
open("/proc/self/comm", "w").write("tc (oom) x")
held = [bytearray(b"x" * (1 << 20)) for _ in range(256)]
"""


@dataclass
class Logs:
    """The log records that arrived."""

    url: str = ""
    records: list[logs_pb2.LogRecord] = field(default_factory=list)

    async def accept(self, _: Signal, message: Message) -> Verdict:
        """Keep log records."""
        if isinstance(message, logs_service_pb2.ExportLogsServiceRequest):
            for resource in message.resource_logs:
                for scope in resource.scope_logs:
                    self.records.extend(scope.log_records)
        return Verdict()

    def of(self, device: str) -> list[logs_pb2.LogRecord]:
        """Return the records of a device, which no other test names."""
        return [
            record
            for record in self.records
            if attributes(record.attributes).get("system.device") == device
        ]


@contextlib.asynccontextmanager
async def logs() -> AsyncIterator[Logs]:
    """Serve a back end."""
    served = Logs()
    server = Server(Receiver(served.accept).routes())
    served.url = f"http://127.0.0.1:{await server.start()}"
    try:
        yield served
    finally:
        await server.stop()


async def test_a_line_of_the_kernels_log_arrives(tmp_path: Path) -> None:
    """It is told once, with severity and attributes; what was written before the start is not."""
    device = f"nvme{os.getpid()}"
    line = f"nvme {device}: I/O 12 QID 4 timeout, aborting"
    KMSG.write_text(f"<4>{line}\n")
    environment = {"TAILCAUSE_AGENT_SPOOL_DIR": str(tmp_path)}
    async with logs() as served:
        flags = ("--forward", served.url, "--export", "off")
        async with agent(*flags, env=environment) as running, asyncio.timeout(60):
            while not served.of(device):
                KMSG.write_text(f"<4>{line}\n")
                await asyncio.sleep(1.5)
            assert await running.end() == 0
    record = served.of(device)[0]
    assert record.event_name == "tailcause.kernel.nvme_timeout"
    assert record.severity_text == "ERROR"
    assert abs(record.observed_time_unix_nano - record.time_unix_nano) <= 2_000_000_000


@pytest.mark.skipif(bool(why_no_memory_limit()), reason=why_no_memory_limit())
def test_a_real_kill_has_its_cgroup() -> None:
    """A process that outgrows its cgroup is told with its pid, its name and where it was, out of two lines."""
    events, found = KernelEvents(), list[KernelEvent]()
    log = KernelLog()
    with cgroups("oom") as (small,), MemoryLimit(small, 32 << 20, swap=False) as limit:
        victim = Gated((GROW,)).put(small)
        limit.add(victim.pid)
        victim.go().process.communicate()
        deadline = time.monotonic() + 30
        while not found and time.monotonic() < deadline:
            told = [events.recognise(record) for record in log.read()]
            found += [
                one for one in told if one and one.attributes.get("process.pid") == victim.pid
            ]
    log.close()
    [kill] = found
    assert kill.name == "tailcause.kernel.cgroup_oom_kill"
    assert kill.attributes["process.executable.name"] == "tc (oom) x"
    assert kill.attributes["tailcause.oom.constraint"] == "CONSTRAINT_MEMCG"
    assert str(kill.attributes["tailcause.cgroup.path"]).endswith("-oom")
