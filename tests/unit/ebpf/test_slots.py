"""The kernel's arithmetic of slots, compiled as a user program, against exact integers."""

import random
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from ebpf import layout

INCLUDE = Path(__file__).parents[3] / "ebpf/include"
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
UNITS_PER_S = 2**30
NS_PER_S = 10**9
LAST = layout.SLOTS - 1
EXACT_BELOW_NS = 2**31
"""Past two seconds the eight lowest bits of a time are dropped before it is multiplied."""

SHIM = """
#pragma once
typedef unsigned int u32;
typedef unsigned long long u64;
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
"""
PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include "slots.h"
int main(int argc, char **argv)
{
	u64 value;
	while (scanf("%llu", &value) == 1)
		printf("%u\n", argc > 1 && !strcmp(argv[1], "log2") ? tc_log2(value) : tc_slot(value));
	return 0;
}
"""

pytestmark = pytest.mark.skipif(CC is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile include/slots.h as it is, with a shim in the place of the kernel's types."""
    folder = tmp_path_factory.mktemp("slots")
    (folder / "kernel.h").write_text(SHIM)
    (folder / "main.c").write_text(PROGRAM)
    shutil.copy(INCLUDE / "slots.h", folder)
    made = folder / "slots"
    command = [
        str(CC),
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        str(folder / "main.c"),
        "-o",
        str(made),
    ]
    subprocess.run(command, check=True)
    return made


def ask(program: Path, values: Iterable[int], *arguments: str) -> list[int]:
    """Let the C program calculate."""
    done = subprocess.run(
        [str(program), *arguments],
        input="\n".join(map(str, values)),
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(line) for line in done.stdout.split()]


def exact(ns: int) -> int:
    """Return the integer log2 of a time in units of 2^-30 s, in exact integers."""
    units = ns * UNITS_PER_S // NS_PER_S
    return min(max(units.bit_length() - 1, 0), LAST)


def lower_bound_ns(slot: int) -> int:
    """Return the first whole nanosecond of a slot."""
    return -(-(1 << slot) * NS_PER_S // UNITS_PER_S)


def around(values: Iterable[int], reach: int = 3) -> list[int]:
    """Return values and their neighbours."""
    return sorted({max(v + d, 0) for v in values for d in range(-reach, reach + 1)})


def test_edges_are_exact(program: Path) -> None:
    """Around every bound of a slot no nanosecond falls on the wrong side."""
    values = around((lower_bound_ns(slot) for slot in range(1, layout.SLOTS)), reach=300)
    assert [exact(v) for v in values] == ask(program, values)


def test_edges_below_two_seconds_are_exact_but_for_the_bound_itself(program: Path) -> None:
    """No nanosecond beside a bound falls on the wrong side of it."""
    bounds = [b for slot in range(32) if (b := lower_bound_ns(slot)) < EXACT_BELOW_NS - 4]
    values = sorted(set(around(bounds)) - set(bounds))
    assert [exact(v) for v in values] == ask(program, values)


def test_random_times_below_two_seconds_are_exact(program: Path) -> None:
    """Random times of every magnitude fall into the slot that exact integers give."""
    source = random.Random(30)
    values = [source.getrandbits(source.randint(1, 31)) for _ in range(20_000)]
    assert [exact(v) for v in values] == ask(program, values)


def test_long_times_are_exact_but_for_the_edge(program: Path) -> None:
    """From two seconds up only the first 256 ns of a slot may be put below it."""
    source = random.Random(31)
    bounds = [lower_bound_ns(slot) for slot in range(31, layout.SLOTS)]
    values = [source.randrange(EXACT_BELOW_NS, 2**40) for _ in range(20_000)]
    values += [v for b in bounds for v in (b - 1, b + 512, b + b // 2)]
    assert [exact(v) for v in values] == ask(program, values)


def test_edges_of_the_arithmetic(program: Path) -> None:
    """Zero, the switch to coarse arithmetic, the last slot and the largest number of all."""
    values = [0, 1, 2**31 - 1, 2**31, 2**39 - 1, 2**39, 2**63, 2**64 - 1]
    assert [exact(v) for v in values] == ask(program, values)


def test_slots_never_fall(program: Path) -> None:
    """A longer time never lies in a lower slot."""
    values = around((2**power for power in range(64)), reach=2)
    slots = ask(program, [v for v in values if v < 2**64])
    assert slots == sorted(slots)


def test_log2_is_exact(program: Path) -> None:
    """The integer logarithm itself, on both sides of every power of two."""
    values = [v for v in around((2**power for power in range(64)), reach=1) if v]
    assert [v.bit_length() - 1 for v in values] == ask(program, values, "log2")


def test_slots_are_the_buckets_that_readings_promise(program: Path) -> None:
    """Slot i begins at FIRST_SLOT_S * 2^i seconds."""
    middles = [layout.FIRST_SLOT_S * 2.0**slot * 1.5 for slot in range(1, layout.SLOTS - 1)]
    assert list(range(1, layout.SLOTS - 1)) == ask(program, [round(s * 1e9) for s in middles])
