"""Where a uprobe goes among a function's first instructions, by the kernel's list of what it emulates."""

import pytest

from ebpf.prologue import Landing, landing

OLD, NEW = (6, 1), (6, 18)


@pytest.mark.parametrize(
    "code",
    [
        "55 48 89 e5",  # push rbp
        "41 57 41 56",  # push r15
        "90 c3",
        "66 90 c3",  # xchg ax, ax
        "eb 10",
        "e9 00 00 00 00",
        "e8 00 00 00 00",
        "74 05",
        "0f 84 00 00 00 00",
    ],
)
def test_an_emulated_instruction_is_taken(code: str) -> None:
    """Pushes, one-byte nops and relative jumps, on every kernel."""
    assert landing(bytes.fromhex(code), OLD, "x86_64") == Landing(0, False)


@pytest.mark.parametrize(
    ("code", "skip"),
    [
        ("f3 0f 1e fa 55", 4),  # endbr64; push rbp
        ("f3 0f 1e fa 41 54", 4),
        ("49 89 ca 55", 3),  # mov r10, rcx; push rbp
        ("4c 8b d1 41 57", 3),  # mov r10, rcx, the other way round
        ("48 89 e5 55", 3),  # mov rbp, rsp only reads the stack pointer
        ("31 c0 55", 2),  # xor eax, eax
        ("f3 0f 1e fa 48 89 f8 49 89 f0 53", 10),
    ],
)
def test_what_touches_neither_stack_nor_flow_is_passed(code: str, skip: int) -> None:
    """The cheap instruction behind it is as good a place."""
    assert landing(bytes.fromhex(code), OLD, "x86_64") == Landing(skip, False)


@pytest.mark.parametrize(
    "code",
    [
        "48 83 ec 08 55",  # sub rsp, 8
        "f3 0f 1e fa 48 83 ec 08",
        "48 89 c4 55",  # mov rsp, rax
        "48 8b e0 55",  # the same, encoded the other way
        "48 8b 07 55",  # a load may fault
        "c3",
        "48 8d 47 08 c3",
        "66 e8 00 00 00 00",  # a prefixed call is not emulated
        "66 55",
        "",
        "f3 0f 1e fa",
    ],
)
def test_anything_else_is_stepped(code: str) -> None:
    """It is said with which bytes the function begins."""
    found = landing(bytes.fromhex(code), OLD, "x86_64")
    assert (found.skip, found.stepped) == (0, True)
    assert code[:11] in found.reason


def test_a_long_nop_is_emulated_since_6_18_and_passed_before() -> None:
    """Older kernels single-step it, so the place behind it is taken."""
    code = bytes.fromhex("0f1f4000 55")
    assert landing(code, NEW, "x86_64") == Landing(0, False)
    assert landing(code, OLD, "x86_64") == Landing(4, False)


@pytest.mark.parametrize("nop", ["0f1f440000", "660f1f4000", "6666666690"])
def test_a_five_byte_nop_is_never_landed_on_since_6_18(nop: str) -> None:
    """There the kernel replaces it by a call that kills a forked child: the place behind it is taken, cheap or not."""
    assert landing(bytes.fromhex(f"{nop} 55"), NEW, "x86_64").skip == 5
    behind = landing(bytes.fromhex(f"{nop} c3"), NEW, "x86_64")
    assert (behind.skip, behind.stepped) == (5, True)


def test_a_long_nop_before_a_costly_instruction_is_stepped_on_old_kernels() -> None:
    """Nothing cheap follows."""
    assert landing(bytes.fromhex("0f1f440000 c3"), OLD, "x86_64").stepped


def test_other_architectures_are_taken_for_costly() -> None:
    """What arm64 emulates depends much on the kernel: it must be allowed."""
    assert landing(bytes.fromhex("1f2003d5"), NEW, "aarch64").stepped
