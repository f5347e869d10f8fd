"""What the kernel says of a look-up in PostgreSQL: its thread waits for the network for as long as the database takes."""

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from agent.telemetry.keys import WAIT_PARTS
from agent.waits import parts_of
from ebpf.hook.library import SpanLibrary
from ebpf.probes.sched import Sched
from ebpf.probes.span import SpanProbe, SpanWaits
from ebpf.session import BUILT
from kernels.workload.clock import Clock
from kernels.workload.tenants import TenantDirectory
from kernels.workload.tenants_postgres import PostgresTenants
from kernels.workload.work import Work
from tests.support.postgres_server import postgres
from tests.support.probe_session import attached, needs_probes
from tests.support.store_programs import POSTGRES

BUILT_LIBRARY = BUILT / "libtailcause_span.so"
HELD_S = 0.4
TABLE = "tailcause_1_100_indexed.tenants"

pytestmark = [
    pytest.mark.privileged,
    needs_probes,
    pytest.mark.skipif(not BUILT_LIBRARY.exists(), reason="needs the span library (a C compiler)"),
    pytest.mark.skipif(POSTGRES is None, reason="needs PostgreSQL (apt-get install postgresql)"),
]


async def test_the_wait_for_a_lock_over_there_is_network(tmp_path: Path) -> None:
    """All of it, and it is charged to the look-up's span."""
    library = tmp_path / BUILT_LIBRARY.name
    shutil.copy(BUILT_LIBRARY, library)
    delivered: list[SpanWaits] = []
    probe = SpanProbe((library,), delivered.append)
    with postgres() as database, attached(Sched(), probe):
        source = PostgresTenants(database.url, 100, indexed=True, timeout_s=60)
        tenants = TenantDirectory(source, 1, SpanLibrary(library))
        await tenants.open()
        await tenants.find("tenant-0001", Work(7, 9, Clock()))
        with database.locked(TABLE):
            work = Work(7, 8, Clock())
            waiting = asyncio.create_task(tenants.find("tenant-0001", work))
            while not database.waiting_for_locks():  # noqa: ASYNC110 - another process decides
                await asyncio.sleep(0.01)
            began_s = time.monotonic()
            await asyncio.sleep(HELD_S)
            assert not waiting.done()
            held_s = time.monotonic() - began_s
        await waiting
        tenants.close()
        probe.poll()
    (span,) = [one for one in delivered if one.span_id == f"{work.span_id:016x}"]
    wall_s = span.end_monotonic_s - span.start_monotonic_s
    network_s = parts_of(span.waits_s)[WAIT_PARTS.index("network")]
    assert held_s - 0.01 <= network_s <= wall_s + 0.01, span.waits_s
