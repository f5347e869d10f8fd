"""Adapters of tenants: files of weights that stay on disk and are read for every request that is generated.

They stand for what a server of many fine-tuned variants does (LoRA weights fetched on demand), as far as the disk
and the page cache are concerned: each file is read whole and checked. The tokens do not depend on them.
"""

import asyncio
import mmap
import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ebpf.hook.library import SpanLibrary
from kernels.errors import WorkloadError
from kernels.workload.cache import build_once
from kernels.workload.spans import RequestTrace, Value
from kernels.workload.work import Work

CHECKED_BYTES = 4096
"""The checksum covers the first page: checking is not what this is about."""

_SUM_BYTES = 4
THREADS = 2


@dataclass(frozen=True)
class AdapterPlan:
    """How many adapters there are, how large each is, and whether reads go past the page cache."""

    count: int
    kib: int
    direct: bool = False


def adapter_folder(cache_dir: Path, plan: AdapterPlan) -> Path | None:
    """Return the folder of adapters, built on first use; None without any."""
    if not plan.count:
        return None
    folder = cache_dir / f"adapters-{plan.count}x{plan.kib}k"
    for number in range(plan.count):
        build_once(folder / _name(number), lambda path, n=number: _build(path, n, plan.kib))  # type: ignore[misc]
    return folder


def _build(path: Path, number: int, kib: int) -> None:
    content = Random(number).randbytes(kib * 1024 - _SUM_BYTES)  # noqa: S311 - weights, no secret
    path.write_bytes(zlib.crc32(content[:CHECKED_BYTES]).to_bytes(_SUM_BYTES) + content)


def _name(number: int) -> str:
    return f"{number:04d}.bin"


class Adapters:
    """Reads adapters in threads of their own; the folder stays open."""

    def __init__(self, folder: Path, plan: AdapterPlan, library: SpanLibrary) -> None:
        self._plan = plan
        self._library = library
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="adapter")
        self._flags = os.O_RDONLY | (os.O_DIRECT if plan.direct else 0)
        try:
            self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            for number in range(plan.count):
                self._forget(number)
        except OSError as error:
            raise WorkloadError(
                f"cannot read {folder}: {error.strerror}: adapter_direct=on takes a file system on a disk"
            ) from error

    async def fetch(self, trace: RequestTrace, tenant: int) -> None:
        """Read the adapter of a tenant; one that cannot be read is told by the span, the request goes on."""
        work = trace.work()
        number = tenant % self._plan.count
        attributes: dict[str, Value] = {
            "tailcause.adapter.number": number,
            "tailcause.adapter.size": self._plan.kib * 1024,
        }
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._pool, self._read, number, work)
        except (OSError, WorkloadError) as error:
            attributes["error.type"] = type(error).__name__
        finally:
            trace.add_work(work, "adapter read", "adapter wait", attributes)

    def close(self) -> None:
        """Give up queued reads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with suppress(OSError):
            os.close(self._folder)

    def _forget(self, number: int) -> None:
        """Drop the pages that a server before us brought in: what is cached shall be charged to our own cgroup."""
        descriptor = os.open(_name(number), self._flags, dir_fd=self._folder)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def _read(self, number: int, work: Work) -> None:
        work.start(self._library)
        try:
            self._fill(number)
        finally:
            work.end(self._library)

    def _fill(self, number: int) -> None:
        buffer = self._buffer()
        descriptor = os.open(_name(number), self._flags, dir_fd=self._folder)
        try:
            length = os.preadv(descriptor, [buffer], 0)
        finally:
            os.close(descriptor)
        expected = int.from_bytes(buffer[:_SUM_BYTES])
        checked = buffer[_SUM_BYTES : _SUM_BYTES + CHECKED_BYTES]
        if length != len(buffer) or zlib.crc32(checked) != expected:
            raise WorkloadError(f"adapter {number} is damaged: remove its folder from the cache")

    def _buffer(self) -> mmap.mmap:
        """Return this thread's buffer; a read past the page cache needs one that begins on a page."""
        buffer: mmap.mmap | None = getattr(self._local, "buffer", None)
        if buffer is None:
            buffer = self._local.buffer = mmap.mmap(-1, self._plan.kib * 1024)
        return buffer
