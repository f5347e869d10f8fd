"""BPF maps and ring buffers as Python reads them, through libbpf."""

import copy
import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebpf.errors import EbpfError

if TYPE_CHECKING:
    from ebpf.libbpf import Library  # which makes maps

_BATCH_BYTES, _BATCH_LEAST = 1 << 18, 16  # of a map's values in one call
_NO_BATCHES = {errno.EINVAL, errno.EOPNOTSUPP, 524}  # before 5.6; ENOTSUPP: this kind of map
_SAMPLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(frozen=True)
class _Batch:
    """Keys and values of some entries, where to go on, and the error number: 0, or ENOENT with the last of them."""

    keys: bytes
    values: bytes
    position: bytes
    error: int


class Map:
    """One BPF map; keys and values are raw bytes, per-CPU values lie one behind the other."""

    def __init__(self, library: "Library", handle: ctypes.c_void_p) -> None:
        call = library.call
        self._call = call
        self.fd: int = call.bpf_map__fd(handle)
        self.key_bytes: int = call.bpf_map__key_size(handle)
        self.max_entries: int = call.bpf_map__max_entries(handle)
        size: int = call.bpf_map__value_size(handle)
        per_cpu = call.bpf_map__type(handle) in {5, 6}
        self.value_bytes = (
            (size + 7) // 8 * 8 * call.libbpf_num_possible_cpus() if per_cpu else size
        )

    def duplicate(self) -> "Map":
        """Return the same map on a descriptor of its own, which outlives the object that loaded it."""
        twin = copy.copy(self)
        twin.fd = os.dup(self.fd)
        return twin

    def close(self) -> None:
        """Close a duplicate."""
        os.close(self.fd)

    def lookup(self, key: bytes) -> bytes | None:
        """Return the value of a key; None when it has none."""
        value = ctypes.create_string_buffer(self.value_bytes)
        if self._call.bpf_map_lookup_elem(self.fd, key, value):
            return None
        return value.raw

    def update(self, key: bytes | None, value: bytes) -> None:
        """Set the value of a key (None pushes onto a queue); raises EbpfError when the map is full."""
        if self._call.bpf_map_update_elem(self.fd, key, value, ctypes.c_uint64(0)):
            raise EbpfError(f"map update failed: {os.strerror(ctypes.get_errno())}")

    def delete(self, key: bytes) -> bool:
        """Remove a key; False when it was not there."""
        return bool(self._call.bpf_map_delete_elem(self.fd, key) == 0)

    def keys(self) -> Iterator[bytes]:
        """Yield the keys; safe against removal of what was yielded."""
        key: bytes | None = None
        following = ctypes.create_string_buffer(self.key_bytes)
        while self._call.bpf_map_get_next_key(self.fd, key, following) == 0:
            following_key = following.raw
            yield following_key
            key = following_key

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values; safe against removal of what was yielded."""
        key_bytes, value_bytes = self.key_bytes, self.value_bytes
        for keys, values in self.batches():
            for i in range(len(keys) // key_bytes):
                yield (
                    keys[i * key_bytes : (i + 1) * key_bytes],
                    values[i * value_bytes : (i + 1) * value_bytes],
                )

    def batches(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys of many entries and their values, one behind the other; of each entry on old kernels."""
        count = min(self.max_entries, max(_BATCH_BYTES // self.value_bytes, _BATCH_LEAST))
        after: bytes | None = None
        while True:
            batch = self._batch(after, count)
            if batch.error == errno.ENOSPC and count < self.max_entries:  # more in one bucket
                count = min(2 * count, self.max_entries)
                continue
            if batch.error in _NO_BATCHES and after is None:
                yield from self._each()
                return
            if batch.error not in {0, errno.ENOENT}:
                raise EbpfError(f"batch look-up failed: {os.strerror(batch.error)}")
            yield batch.keys, batch.values
            if batch.error == errno.ENOENT:
                return
            after = batch.position

    def _each(self) -> Iterator[tuple[bytes, bytes]]:
        for key in list(self.keys()):
            value = self.lookup(key)
            if value is not None:
                yield key, value

    def _batch(self, after: bytes | None, count: int) -> "_Batch":
        """Look up to `count` entries up behind a position (hash maps since Linux 5.6)."""
        keys = ctypes.create_string_buffer(self.key_bytes * count)
        values = ctypes.create_string_buffer(self.value_bytes * count)
        found = ctypes.c_uint32(count)
        position = ctypes.create_string_buffer(max(self.key_bytes, 4))
        failed = self._call.bpf_map_lookup_batch(
            self.fd, after, position, keys, values, ctypes.byref(found), None
        )
        error = ctypes.get_errno() if failed else 0
        there = found.value if error in {0, errno.ENOENT} else 0
        return _Batch(
            ctypes.string_at(keys, there * self.key_bytes),
            ctypes.string_at(values, there * self.value_bytes),
            position.raw,
            error,
        )

    def read_array(self, count: int) -> bytes:
        """Return the first `count` values of an array map (per-CPU values one behind the other)."""
        return b"".join(self.chunks(count))

    def chunks(self, count: int) -> Iterator[bytes]:
        """Yield the same, some values at a time: with hundreds of CPUs all of them are tens of megabytes."""
        size = min(count, max(_BATCH_BYTES // self.value_bytes, 1))
        after: bytes | None = None
        while count > 0:
            batch = self._batch(after, min(size, count))
            if batch.error not in {0, errno.ENOENT}:
                raise EbpfError(f"batch look-up failed: {os.strerror(batch.error)}")
            yield batch.values
            count = 0 if batch.error else count - size
            after = batch.position


class RingBuffer:
    """Reads records from a ring buffer map."""

    def __init__(self, library: "Library", ring: Map, consume: Callable[[bytes], None]) -> None:
        def on_sample(_context: int, data: int, size: int) -> int:
            consume(ctypes.string_at(data, size))
            return 0

        self._call = library.call
        self._callback = _SAMPLE(on_sample)
        self._handle = ctypes.c_void_p(
            library.call.ring_buffer__new(ring.fd, self._callback, None, None)
        )
        if not self._handle:
            raise EbpfError("cannot open the ring buffer")

    def consume(self) -> int:
        """Take what is there, whether or not its writer woke anybody; return how many records."""
        return max(int(self._call.ring_buffer__consume(self._handle)), 0)

    def close(self) -> None:
        """Free it."""
        self._call.ring_buffer__free(self._handle)
