"""Reading whole maps: every entry once, by batches or one by one."""

import ctypes
import errno
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from ebpf import layout, maps
from ebpf.cgroupids import find_hierarchy
from ebpf.errors import EbpfError
from ebpf.libbpf import Library, Object
from ebpf.maps import Map
from ebpf.session import BUILT
from ebpf.syscalls import wait_classes
from tests.support.probe_session import needs_probes

pytestmark = [pytest.mark.privileged, needs_probes]

PRIME = 997
PLAIN, PER_CPU = "cgroup_slots", "latencies"


@pytest.fixture
def opened() -> Iterator[Object]:
    """Load maps of both kinds, and none of their programs."""
    with Object(Library(), BUILT / "blkio.bpf.o") as loaded:
        loaded.configure(".rodata", layout.config(find_hierarchy().hierarchy, wait_classes()))
        loaded.resize(PER_CPU, PRIME)
        loaded.load()
        yield loaded


def fill(filled: Map) -> dict[bytes, bytes]:
    """Put a prime number of entries in, no two alike; return them."""
    entries = {}
    for i in range(PRIME):
        key = struct.pack("=Q", i * 7919)
        entries[key] = struct.pack("=I", i) * (filled.value_bytes // 4)
        filled.update(key, entries[key])
    return entries


class Counting:
    """libbpf as the maps call it, with the look-ups counted and, if wanted, those by batches refused."""

    def __init__(self, call: Any, refused: int = 0, after: int = 0) -> None:
        self._call, self._refused, self._after = call, refused, after
        self.batches = self.singles = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def bpf_map_lookup_batch(self, *arguments: Any) -> int:
        """Look some entries up, or say that this kernel cannot."""
        self.batches += 1
        if self._refused and self.batches > self._after:
            ctypes.set_errno(self._refused)
            return -self._refused
        return int(self._call.bpf_map_lookup_batch(*arguments))

    def bpf_map_lookup_elem(self, *arguments: Any) -> int:
        """Look one entry up."""
        self.singles += 1
        return int(self._call.bpf_map_lookup_elem(*arguments))


@pytest.mark.parametrize("name", [PLAIN, PER_CPU])
def test_every_entry_comes_once_in_a_few_calls(
    opened: Object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prime number of entries, each with its own value on every CPU."""
    read = opened.map(name)
    entries = fill(read)
    calls = Counting(read._call)
    monkeypatch.setattr(read, "_call", calls)
    found = list(read.items())

    assert len(found) == PRIME
    assert dict(found) == entries
    assert calls.singles == 0
    assert calls.batches <= 20


def test_a_bucket_with_more_than_a_batch(opened: Object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the next bucket does not fit into a batch, the batch grows: with a batch of one it must."""
    monkeypatch.setattr(maps, "_BATCH_BYTES", 1)
    monkeypatch.setattr(maps, "_BATCH_LEAST", 1)
    read = opened.map(PLAIN)
    entries = fill(read)
    found = list(read.items())

    assert len(found) == PRIME
    assert dict(found) == entries


@pytest.mark.parametrize("error", [errno.EINVAL, 524])
def test_kernel_without_batches(
    opened: Object, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 5.6, or for maps that have none: one entry at a time, with the same result."""
    read = opened.map(PER_CPU)
    entries = fill(read)
    calls = Counting(read._call, refused=error)
    monkeypatch.setattr(read, "_call", calls)

    assert dict(read.items()) == entries
    assert calls.singles == PRIME


def test_failing_half_way_is_an_error(opened: Object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that cannot be read are not passed over in silence."""
    read = opened.map(PER_CPU)
    fill(read)
    monkeypatch.setattr(read, "_call", Counting(read._call, refused=errno.ENOMEM, after=1))

    with pytest.raises(EbpfError, match="Cannot allocate memory"):
        list(read.items())


def test_removing_what_was_yielded(opened: Object) -> None:
    """Each entry may be deleted as it comes: all come, and nothing is left."""
    read = opened.map(PER_CPU)
    entries = fill(read)
    came = {key: value for key, value in read.items() if read.delete(key)}

    assert came == entries
    assert list(read.items()) == []


def test_empty_map(opened: Object) -> None:
    """No entries, no error."""
    assert list(opened.map(PLAIN).items()) == []
    assert list(opened.map(PER_CPU).items()) == []
