"""Where in a function's first instructions a uprobe is cheap.

The kernel emulates some instructions and single-steps all others out of line, which costs some twenty times as much
(measured by ebpf/trapcost.py). Source: arch/x86/kernel/uprobes.c: pushes of a register, nops, relative jumps and calls;
the multi-byte nops of opcode 0f 1f since Linux 6.18, which puts a call in place of those of five bytes.

Where the first instruction is a costly one that touches neither the stack nor the flow (endbr64, a move between
registers), the uprobe goes behind it: the return address still lies where a return probe looks for it.
"""

import platform
from dataclasses import dataclass

_LONG_NOPS_SINCE = (6, 18)
_ENDBR64 = b"\xf3\x0f\x1e\xfa"
_MAX_SKIPPED = 4
_STACK_POINTER = 4
_REGISTER_MOVES = {0x89: "to", 0x8B: "from", 0x31: "to", 0x33: "from"}
"""mov and xor; whether the ModRM byte's r/m field or its reg field is written to."""


@dataclass(frozen=True)
class Landing:
    """Where a uprobe goes in a function, and what it costs there."""

    skip: int
    """Bytes behind the function's first."""
    stepped: bool
    """The kernel must single-step the instruction there."""
    reason: str = ""
    """Why it is costly."""


def landing(code: bytes, release: tuple[int, int], machine: str | None = None) -> Landing:
    """Choose the place by the bytes that the function begins with (16 are enough)."""
    if (machine or platform.machine()) != "x86_64":
        return Landing(0, True, "the kernel single-steps most instructions of this architecture")
    at = 0
    for _ in range(_MAX_SKIPPED + 1):
        if _is_emulated(code[at:], release):
            return Landing(at, False)
        length = _harmless(code[at:])
        if not length:
            break
        at += length
    first = code[:4].hex(" ")
    if _is_rewritten(code, release):
        return Landing(5, True, f"it begins with {first}, which this kernel rewrites unsafely")
    return Landing(0, True, f"it begins with {first}, which the kernel must single-step")


def _is_rewritten(code: bytes, release: tuple[int, int]) -> bool:
    """Tell whether the kernel would put a call in place of a five-byte nop.

    Linux 6.18 does; a child that is forked later lacks the page that is called, and dies.
    """
    if release < _LONG_NOPS_SINCE:
        return False
    long_nop = code.startswith((b"\x0f\x1f", b"\x66\x0f\x1f")) and _long_nop(code) == 5
    return long_nop or code.startswith(b"\x66\x66\x66\x66\x90")


def _is_emulated(code: bytes, release: tuple[int, int]) -> bool:
    if _is_rewritten(code, release):
        return False
    rest = code.lstrip(b"\x66")
    prefixed = len(rest) != len(code)
    if rest[:1] == b"\x90":
        return True
    if rest[:2] == b"\x0f\x1f":
        return release >= _LONG_NOPS_SINCE
    if prefixed or not rest:
        return False
    first, second = rest[0], rest[1] if len(rest) > 1 else 0
    push = 0x50 <= first <= 0x57 or (first == 0x41 and 0x50 <= second <= 0x57)
    flow = first in {0xE8, 0xE9, 0xEB} or 0x70 <= first <= 0x7F
    return push or flow or (first == 0x0F and 0x80 <= second <= 0x8F)


def _harmless(code: bytes) -> int:
    """Return the length of an instruction that a uprobe may follow as well as precede; 0 for any other."""
    if code[:4] == _ENDBR64:
        return 4
    if code[:2] == b"\x0f\x1f" or code[:3] == b"\x66\x0f\x1f":
        return _long_nop(code)
    rex = code[0] if code and 0x40 <= code[0] <= 0x4F else 0
    at = 1 if rex else 0
    if len(code) < at + 2 or code[at] not in _REGISTER_MOVES:
        return 0
    modrm = code[at + 1]
    if modrm < 0xC0:  # memory
        return 0
    to_reg = _REGISTER_MOVES[code[at]] == "from"
    written = (modrm >> 3 & 7) | (rex & 4) << 1 if to_reg else (modrm & 7) | (rex & 1) << 3
    return 0 if written == _STACK_POINTER else at + 2


def _long_nop(code: bytes) -> int:
    """Return the length of a nop with a ModRM byte; 0 where it is not one of the usual forms."""
    prefix = 1 if code[:1] == b"\x66" else 0
    if len(code) < prefix + 3:
        return 0
    modrm = code[prefix + 2]
    extra = {0x00: 0, 0x40: 1, 0x44: 2, 0x80: 4, 0x84: 5}.get(modrm)
    return 0 if extra is None else prefix + 3 + extra
