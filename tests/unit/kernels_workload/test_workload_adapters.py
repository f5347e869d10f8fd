"""Adapters: read whole for every request, checked, and never in the way of an answer."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from ebpf.hook.library import SpanLibrary
from kernels.errors import WorkloadError
from kernels.workload.adapters import AdapterPlan, Adapters, adapter_folder
from kernels.workload.clock import Clock
from kernels.workload.work import Work

PLAN = AdapterPlan(count=3, kib=16)


class Trace:
    """Remembers the span that a read leaves."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Mapping[str, object]]] = []

    def work(self) -> Work:
        """Announce work."""
        return Work(1, 2, Clock())

    def add_work(self, work: Work, name: str, wait: str, attributes: Mapping[str, object]) -> None:
        """Keep the span."""
        started_ns, ended_ns = work.close()
        assert 0 < started_ns <= ended_ns
        assert wait == "adapter wait"
        self.spans.append((name, attributes))


async def read(folder: Path, plan: AdapterPlan, tenant: int) -> Mapping[str, object]:
    """Read one adapter; the attributes of its span."""
    adapters = Adapters(folder, plan, SpanLibrary())
    trace = Trace()
    try:
        await adapters.fetch(trace, tenant)  # type: ignore[arg-type]
    finally:
        adapters.close()
    ((name, attributes),) = trace.spans
    assert name == "adapter read"
    return attributes


async def test_a_tenant_has_an_adapter_that_is_read_and_checked(tmp_path: Path) -> None:
    """Tenants share what there is; one that nobody knows gets one, too."""
    folder = adapter_folder(tmp_path, PLAN)
    assert folder is not None

    told = [await read(folder, PLAN, tenant) for tenant in (4, -1)]

    assert [attributes["tailcause.adapter.number"] for attributes in told] == [1, 2]
    assert all("error.type" not in attributes for attributes in told)
    assert [file.stat().st_size for file in sorted(folder.iterdir())] == [16 * 1024] * 3


@pytest.mark.parametrize("damage", ["cut", "other", "gone"])
async def test_a_damaged_adapter_is_told_by_its_span(tmp_path: Path, damage: str) -> None:
    """The request goes on without it."""
    folder = adapter_folder(tmp_path, PLAN)
    assert folder is not None
    file = folder / "0001.bin"
    adapters = Adapters(folder, PLAN, SpanLibrary())
    if damage == "cut":
        os.truncate(file, 100)
    elif damage == "other":
        file.write_bytes(b"\1" * (16 * 1024))
    else:
        file.unlink()
    trace = Trace()

    await adapters.fetch(trace, 1)  # type: ignore[arg-type]

    adapters.close()
    assert trace.spans[0][1]["error.type"] in ("WorkloadError", "FileNotFoundError")


def test_a_folder_that_is_gone_stops_the_server(tmp_path: Path) -> None:
    """With what to do about it."""
    with pytest.raises(WorkloadError, match="cannot read"):
        Adapters(tmp_path / "gone", PLAN, SpanLibrary())


def test_none_are_built_unless_asked_for(tmp_path: Path) -> None:
    """The default costs nothing."""
    assert adapter_folder(tmp_path, AdapterPlan(0, 16)) is None
    assert list(tmp_path.iterdir()) == []
