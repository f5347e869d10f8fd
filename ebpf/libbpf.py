"""A narrow binding to libbpf.so.1: open, configure, load, attach, detach; `maps.py` reads what is counted.

Only what the probes use is bound. An object is a context manager; leaving it detaches every link and closes every map,
and the kernel then frees the programs. Source: libbpf's public headers, version 1.1 and later.
"""

import ctypes
import errno
import os
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from ebpf import capabilities
from ebpf.errors import EbpfError, LoadError, NoPermissionError, NotSupportedError
from ebpf.maps import Map

Handle = ctypes.c_void_p
_BTF = Path("/sys/kernel/btf/vmlinux")
_LOG_BYTES = 4000
_ITERATOR_BYTES = 1 << 15  # what the kernel hands over in one read
_LOCKED = "BPF is locked (lockdown, seccomp, a security module or a user namespace)"
_REJECTED = "PROG LOAD LOG"  # stands in libbpf's log when the verifier had something to say

_RETURNS_POINTER = (
    "bpf_object__open_file",
    "bpf_object__find_program_by_name",
    "bpf_object__find_map_by_name",
    "bpf_program__attach",
    "bpf_program__attach_uprobe_opts",
    "bpf_program__attach_perf_event",
    "bpf_program__attach_iter",
    "bpf_map__initial_value",
    "ring_buffer__new",
)
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class _UprobeOptions(ctypes.Structure):
    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("ref_ctr_offset", ctypes.c_size_t),
        ("bpf_cookie", ctypes.c_uint64),
        ("retprobe", ctypes.c_bool),
        ("func_name", ctypes.c_char_p),
    )


class _IteratorTarget(ctypes.Structure):
    """The `task` member of union bpf_iter_link_info, which is 16 bytes."""

    _fields_ = (
        ("tid", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("pid_fd", ctypes.c_uint32),
        ("rest", ctypes.c_uint32),
    )


class _IteratorOptions(ctypes.Structure):
    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("link_info", ctypes.POINTER(_IteratorTarget)),
        ("link_info_len", ctypes.c_uint32),
    )


class Library:
    """libbpf itself; raises NotSupportedError where it is not installed."""

    def __init__(self, name: str = "libbpf.so.1") -> None:
        try:
            self.call = ctypes.CDLL(name, use_errno=True)
        except OSError as exc:
            raise NotSupportedError(
                f"{name} is not installed (Debian and Ubuntu: apt-get install libbpf1)"
            ) from exc
        for function in _RETURNS_POINTER:
            getattr(self.call, function).restype = ctypes.c_void_p
        self._log: list[str] = []
        self._printer = _PRINT(self._print)
        self._format = ctypes.CDLL(None).vsnprintf
        self.call.libbpf_set_print(self._printer)

    @cached_property
    def tracepoints(self) -> frozenset[str]:
        """Names of the tracepoints that the kernel's BTF describes."""
        found = re.findall(rb"\0btf_trace_(\w+)(?=\0)", _BTF.read_bytes())
        return frozenset(name.decode() for name in found)

    def last_words(self) -> str:
        """Return the end of what libbpf and the verifier said, and forget it."""
        said, self._log = "".join(self._log), []
        return said[-_LOG_BYTES:].strip()

    def _print(self, level: int, template: bytes, arguments: int) -> int:
        if level > 1:  # LIBBPF_DEBUG
            return 0
        buffer = ctypes.create_string_buffer(1 << 20)
        self._format(buffer, ctypes.c_size_t(len(buffer)), template, ctypes.c_void_p(arguments))
        self._log = [*self._log[-20:], buffer.value.decode(errors="replace")]
        return 0


class Object:
    """One compiled BPF object, from open to detach."""

    def __init__(
        self, library: Library, path: Path, shared: Mapping[str, Map] | None = None
    ) -> None:
        self._library, self._call, self.path = library, library.call, path
        self._links: dict[str, Handle] = {}
        self._handle = Handle(self._call.bpf_object__open_file(str(path).encode(), None))
        if not self._handle:
            raise LoadError(f"cannot open {path}: {library.last_words()}")
        for name, other in (shared or {}).items():
            handle = Handle(self._call.bpf_object__find_map_by_name(self._handle, name.encode()))
            if handle and self._call.bpf_map__reuse_fd(handle, other.fd):
                raise LoadError(f"{path.name}: map {name} cannot be shared")

    def configure(self, section: str, value: bytes) -> None:
        """Set all of a data section (`.rodata`) before it is loaded."""
        handle = Handle(self._call.bpf_object__find_map_by_name(self._handle, section.encode()))
        size = ctypes.c_size_t()
        place = self._call.bpf_map__initial_value(handle, ctypes.byref(size)) if handle else None
        if not place or size.value != len(value):
            raise LoadError(
                f"{self.path.name}: {section} is not {len(value)} bytes; build it again"
            )
        ctypes.memmove(place, value, len(value))

    def resize(self, name: str, entries: int) -> None:
        """Set the number of entries of a map before it is loaded."""
        self._call.bpf_map__set_max_entries(self._find_map(name), entries)

    def select(self, program: str, wanted: bool) -> None:
        """Choose whether a program is loaded."""
        self._call.bpf_program__set_autoload(self._find_program(program), wanted)

    def set_hook(self, program: str, tracepoint: str) -> None:
        """Choose a `tp_btf` program for loading, and its tracepoint; raises NotSupportedError where that is missing."""
        known = tracepoint in self._library.tracepoints  # libbpf would look through every module
        if not known or self._call.bpf_program__set_attach_target(
            self._find_program(program), 0, tracepoint.encode()
        ):
            raise NotSupportedError(
                f"this kernel has no tracepoint {tracepoint} ({program} needs it)"
            )
        self.select(program, True)

    def expect(self, program: str, attach_type: int) -> None:
        """Say, before it is loaded, how a program will be attached (enum bpf_attach_type)."""
        self._call.bpf_program__set_expected_attach_type(self._find_program(program), attach_type)

    def load(self) -> None:
        """Hand the object to the kernel; raises NoPermissionError, NotSupportedError or LoadError."""
        self._library.last_words()
        failed = self._call.bpf_object__load(self._handle)
        if failed:
            raise self._refusal(self.path.name, -failed)

    def attach(self, program: str) -> None:
        """Attach a program where its section name says; raises NotSupportedError when the hook is missing."""
        self._keep(program, self._call.bpf_program__attach(self._find_program(program)))

    def attach_uprobe(
        self,
        program: str,
        binary: Path,
        offset: int,
        *,
        on_return: bool = False,
        cookie: int = 0,
    ) -> str:
        """Attach a program to an offset in a file, for all processes; return the link's name."""
        options = _UprobeOptions(ctypes.sizeof(_UprobeOptions), 0, cookie, on_return, None)
        link = self._call.bpf_program__attach_uprobe_opts(
            self._find_program(program),
            -1,
            str(binary).encode(),
            ctypes.c_size_t(offset),
            ctypes.byref(options),
        )
        name = f"{program}@{binary}+{offset:#x}"
        while name in self._links:  # the path of a descriptor may stand for another file by now
            name += "'"
        self._keep(name, link)
        return name

    def attach_iterator(self, program: str, pid: int | None = None) -> str:
        """Let a task iterator walk one process's threads (since Linux 6.1) or all; return the link's name."""
        target = _IteratorTarget(0, pid or 0, 0, 0)
        options = _IteratorOptions(
            ctypes.sizeof(_IteratorOptions), ctypes.pointer(target), ctypes.sizeof(target)
        )
        chosen = ctypes.byref(options) if pid else None
        link = self._call.bpf_program__attach_iter(self._find_program(program), chosen)
        name = f"{program}@{pid or 'all'}"
        self._keep(name, link)
        return name

    def read_iterator(self, name: str) -> bytes:
        """Walk once: return everything that the iterator's program writes."""
        fd = self._call.bpf_iter_create(self._call.bpf_link__fd(self._links[name]))
        if fd < 0:
            raise EbpfError(f"{name}: cannot walk: {os.strerror(-fd)}")
        try:
            pieces = []
            while piece := os.read(fd, _ITERATOR_BYTES):
                pieces.append(piece)
        finally:
            os.close(fd)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def attach_perf_event(self, program: str, fd: int) -> str:
        """Run a program at each overflow of a perf event, which is closed with the link; return the link's name."""
        name = f"{program}@perf:{fd}"
        link = self._call.bpf_program__attach_perf_event(self._find_program(program), fd)
        if not link:
            os.close(fd)
        self._keep(name, link)
        return name

    def detach(self, name: str | None = None) -> None:
        """Detach one link, or all of them."""
        for key in [name] if name else list(self._links):
            self._call.bpf_link__destroy(self._links.pop(key))

    def map(self, name: str) -> Map:
        """Return a map by name; data sections by theirs (`.bss`)."""
        return Map(self._library, self._find_map(name))

    def program_fd(self, program: str) -> int:
        """Return the file descriptor of a loaded program."""
        return int(self._call.bpf_program__fd(self._find_program(program)))

    def close(self) -> None:
        """Detach everything and free the object."""
        self.detach()
        if self._handle:
            self._call.bpf_object__close(self._handle)
            self._handle = Handle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _keep(self, name: str, link: int | None) -> None:
        if not link:
            code = ctypes.get_errno()
            refusal = self._refusal(f"{name}: cannot attach", code)
            if isinstance(refusal, LoadError):
                refusal = NotSupportedError(str(refusal))
            raise refusal
        self._links[name] = Handle(link)

    def _refusal(self, what: str, code: int) -> EbpfError:
        """Say why the kernel refused: a capability, a hook that it does not have, or the verifier's last words."""
        words = self._library.last_words()
        # the verifier rejects with EACCES, too: then it has said why
        if code == errno.EPERM or (code == errno.EACCES and _REJECTED not in words):
            lacking = " and ".join(capabilities.missing())
            needed = f"BPF programs need {lacking}" if lacking else _LOCKED
            return NoPermissionError(f"{what}: {needed}")
        if "BTF type ID" in words:
            return NotSupportedError(f"{what}: this kernel does not have the hook: {words[-200:]}")
        return LoadError(f"{what}: {os.strerror(code)}: {words}")

    def _find_program(self, name: str) -> Handle:
        found = Handle(self._call.bpf_object__find_program_by_name(self._handle, name.encode()))
        if not found:
            raise LoadError(f"{self.path.name} has no program {name}; build it again")
        return found

    def _find_map(self, name: str) -> Handle:
        found = Handle(self._call.bpf_object__find_map_by_name(self._handle, name.encode()))
        if not found:
            raise LoadError(f"{self.path.name} has no map {name}; build it again")
        return found
