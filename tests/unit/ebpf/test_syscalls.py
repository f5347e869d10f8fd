"""The tables of system calls say what the kernel's own headers say."""

import platform
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from ebpf.errors import NotSupportedError
from ebpf.layout import Wait
from ebpf.syscalls import _ARM64, _CLASSES, _X86_64, COUNT, wait_classes

X86_HEADERS = (
    Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    Path("/usr/include/asm/unistd_64.h"),
)
GENERIC_HEADER = Path("/usr/include/asm-generic/unistd.h")
ARM_SPELLING = {"newfstatat": "3264_fstatat"}


def numbers(header: Path, prefix: str) -> dict[str, int]:
    """Return the system calls that a header defines."""
    found = re.findall(rf"#define {prefix}(\w+)\s+(\d+)\n", header.read_text())
    return {name: int(number) for name, number in found}


def known_to(header: Mapping[str, int], table: Mapping[str, int]) -> dict[str, int]:
    """Return what the header says of our table's names; it may be older than our newest call."""
    return {name: header[name] for name in table if name in header}


@pytest.mark.skipif(
    not any(path.exists() for path in X86_HEADERS), reason="needs x86 kernel headers (libc6-dev)"
)
def test_x86_numbers() -> None:
    """x86-64 numbers are those of asm/unistd_64.h."""
    header = numbers(next(path for path in X86_HEADERS if path.exists()), "__NR_")
    said = known_to(header, _X86_64)
    assert {name: _X86_64[name] for name in said} == said
    assert len(said) > 0.9 * len(_X86_64)


@pytest.mark.skipif(not GENERIC_HEADER.exists(), reason="needs kernel headers (linux-libc-dev)")
def test_arm64_numbers() -> None:
    """arm64 uses the generic numbers of asm-generic/unistd.h."""
    header = numbers(GENERIC_HEADER, "__NR_")
    header |= {ours: header[theirs] for ours, theirs in ARM_SPELLING.items() if theirs in header}
    header |= {
        name.removeprefix("3264_"): number
        for name, number in header.items()
        if name.startswith("3264_")
    }
    said = known_to(header, _ARM64)
    assert {name: _ARM64[name] for name in said} == said
    assert len(said) > 0.9 * len(_ARM64)


def test_every_class_is_a_wait_of_its_own() -> None:
    """No call stands for two waits."""
    names = [name for calls in _CLASSES.values() for name in calls]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("table", [_X86_64, _ARM64], ids=["x86_64", "aarch64"])
def test_every_number_is_used(table: Mapping[str, int]) -> None:
    """A table holds the calls that have a class, and no others."""
    classified = {name for calls in _CLASSES.values() for name in calls}
    assert set(table) <= classified
    assert len(set(table.values())) == len(table)


@pytest.mark.parametrize(
    ("call", "wait"),
    [
        ("futex", Wait.LOCK),
        ("epoll_pwait", Wait.POLL),
        ("recvfrom", Wait.NETWORK),
        ("pread64", Wait.DISK),
        ("clock_nanosleep", Wait.SLEEP),
    ],
)
@pytest.mark.parametrize(
    ("machine", "table"), [("x86_64", _X86_64), ("aarch64", _ARM64)], ids=["x86_64", "aarch64"]
)
def test_class_of_a_call(machine: str, table: Mapping[str, int], call: str, wait: Wait) -> None:
    """The bytes that the kernel's side looks up hold the class at the call's number."""
    assert Wait(wait_classes(machine)[table[call]]) is wait


def test_unlisted_calls_are_other() -> None:
    """Every number has a class."""
    classes = wait_classes("x86_64")
    assert len(classes) == COUNT
    assert Wait(classes[max(_X86_64.values()) + 1]) is Wait.OTHER


def test_unknown_machine_is_said() -> None:
    """An architecture without a table is not supported, by name."""
    with pytest.raises(NotSupportedError, match="riscv64"):
        wait_classes("riscv64")


@pytest.mark.skipif(platform.machine() not in {"x86_64", "aarch64"}, reason="needs x86-64 or arm64")
def test_this_machine_is_the_default() -> None:
    """Without a name the running machine's table is meant."""
    assert wait_classes(platform.machine()) == wait_classes()
