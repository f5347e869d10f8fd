"""Many uprobes at a time.

Since Linux 6.6 one link holds all offsets of a file. That matters on the way out: detaching waits for every CPU to have
left the programs, some 50 ms for a link however many offsets it has, and a hundred links of one offset take ten seconds.
Source: struct bpf_attr, link_create.uprobe_multi, in include/uapi/linux/bpf.h.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ebpf.errors import NoPermissionError, NotSupportedError
from ebpf.libbpf import Object

_MULTI_SINCE = (6, 6)
_LINK_CREATE = 28  # BPF_LINK_CREATE
_UPROBE_MULTI = 48  # BPF_TRACE_UPROBE_MULTI
_ON_RETURN = 1  # BPF_F_UPROBE_MULTI_RETURN
_ATTRIBUTES = struct.Struct("=IIIIQQQQIIII")
_BPF_CALL = {"x86_64": 321, "aarch64": 280}
_CLOSING_AT_ONCE = 32


@dataclass(frozen=True)
class Point:
    """One place for a uprobe: the offset in the file, and what the program is told there."""

    offset: int
    cookie: int


class Uprobes:
    """The uprobes of one BPF object; `prepare` goes before the object is loaded."""

    def __init__(self, opened: Object, release: tuple[int, int]) -> None:
        self._object = opened
        self._multi = release >= _MULTI_SINCE and platform.machine() in _BPF_CALL
        self._links: dict[int, int | list[str]] = {}
        self._made = 0

    def prepare(self, programs: Iterable[str]) -> None:
        """Say, before the object is loaded, which programs will be attached here."""
        if self._multi:
            for program in programs:
                self._object.expect(program, _UPROBE_MULTI)

    def attach(
        self, program: str, file: Path, points: Sequence[Point], *, on_return: bool = False
    ) -> int:
        """Attach a program to places in a file, for all processes; return a number to close it by."""
        self._made += 1
        if self._multi:
            self._links[self._made] = self._attach_multi(program, file, points, on_return)
        else:
            self._links[self._made] = self._attach_each(program, file, points, on_return)
        return self._made

    def close(self, links: Iterable[int] | None = None) -> None:
        """Detach some, or all of them, at once: they wait together."""
        closing = [self._links.pop(link) for link in list(links or self._links)]
        fds = [link for link in closing if isinstance(link, int)]
        names = [name for link in closing if not isinstance(link, int) for name in link]
        if len(fds) == 1:
            os.close(fds[0])
        elif fds:
            _close_at_once(fds)
        for name in names:
            self._object.detach(name)

    def _attach_each(
        self, program: str, file: Path, points: Sequence[Point], on_return: bool
    ) -> list[str]:
        made: list[str] = []
        attach = self._object.attach_uprobe
        try:
            for point in points:
                made += [
                    attach(program, file, point.offset, on_return=on_return, cookie=point.cookie)
                ]
        except BaseException:
            for name in made:
                self._object.detach(name)
            raise
        return made

    def _attach_multi(
        self, program: str, file: Path, points: Sequence[Point], on_return: bool
    ) -> int:
        path = ctypes.create_string_buffer(bytes(file))
        offsets = (ctypes.c_uint64 * len(points))(*(point.offset for point in points))
        cookies = (ctypes.c_uint64 * len(points))(*(point.cookie for point in points))
        attributes = ctypes.create_string_buffer(
            _ATTRIBUTES.pack(
                self._object.program_fd(program), 0, _UPROBE_MULTI, 0, ctypes.addressof(path),
                ctypes.addressof(offsets), 0, ctypes.addressof(cookies), len(points), _ON_RETURN if on_return else 0, 0, 0,
            ),
            _ATTRIBUTES.size,
        )  # fmt: skip
        call = ctypes.CDLL(None, use_errno=True).syscall
        call.restype = ctypes.c_long
        number = ctypes.c_long(_BPF_CALL[platform.machine()])
        link = call(
            number, ctypes.c_long(_LINK_CREATE), attributes, ctypes.c_long(_ATTRIBUTES.size)
        )
        if link < 0:
            raise _refused(program, ctypes.get_errno())
        return int(link)


def _close_at_once(fds: Sequence[int]) -> None:
    left = list(fds)
    try:
        with ThreadPoolExecutor(min(len(fds), _CLOSING_AT_ONCE)) as pool:
            waiting = []
            while left:
                waiting.append(pool.submit(os.close, left[-1]))
                left.pop()
            for closing in waiting:
                closing.result()
    except RuntimeError:  # the interpreter is ending and starts no more threads
        for fd in left:
            os.close(fd)


def _refused(program: str, error: int) -> NotSupportedError | NoPermissionError:
    if error in {errno.EPERM, errno.EACCES}:
        return NoPermissionError(f"{program}: uprobes need CAP_PERFMON, or CAP_SYS_ADMIN")
    return NotSupportedError(f"{program}: cannot attach uprobes: {os.strerror(error)}")
