"""The C structs and their mirror in Python are the same, byte for byte."""

import re
from pathlib import Path

import pytest

import ebpf
from ebpf import layout
from ebpf.layout import LAYOUTS, STATS_FIELDS, Hierarchy, Layout, Wait

ROOT = Path(ebpf.__file__).parent
HEADERS = {
    path.name if path.parent.name == "probes" else f"include/{path.name}": path.read_text()
    for path in (*ROOT.glob("include/*.h"), *ROOT.glob("probes/*.h"))
}
C = "\n".join(HEADERS.values())
ASSERTED = {
    name: int(size)
    for name, size in re.findall(r"_Static_assert\(sizeof\(struct (\w+)\) == (\d+)", C)
}


def enumerators(name: str) -> dict[str, int]:
    """Return the members of a C enum that are given a number."""
    body = re.search(rf"enum {name} {{(.*?)}}", C, re.DOTALL)
    assert body is not None
    return {key: int(value) for key, value in re.findall(r"(\w+) = (\d+)", body[1])}


def defined(name: str) -> int:
    """Return a C macro's number."""
    found = re.search(rf"#define {name} (\d+)", C)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("mirror", LAYOUTS, ids=[mirror.c_name for mirror in LAYOUTS])
def test_struct_has_its_asserted_size(mirror: Layout) -> None:
    """The compiler asserts the size that Python calculates."""
    assert ASSERTED[mirror.c_name] == mirror.size


def test_every_asserted_struct_has_a_mirror() -> None:
    """No struct that the C side shares is unknown to Python."""
    assert set(ASSERTED) == {mirror.c_name for mirror in LAYOUTS}


def test_waits_have_the_same_numbers() -> None:
    """Enum tc_wait and Wait agree, name by name."""
    c_names = {"OTHER": "OTHER_WAIT"}
    expected = {f"TC_{c_names.get(wait.name, wait.name)}": int(wait) for wait in Wait}
    assert {**expected, "TC_WAITS": layout.WAITS} == enumerators("tc_wait")


def test_hierarchies_have_the_same_numbers() -> None:
    """Enum tc_hierarchy and Hierarchy agree."""
    assert {f"TC_{one.name}": int(one) for one in Hierarchy} == enumerators("tc_hierarchy")


def test_counters_have_the_same_order() -> None:
    """The names of what was dropped stand in the order of struct tc_stats."""
    body = re.search(r"struct tc_stats {(.*?)};", C, re.DOTALL)
    assert body is not None
    assert list(STATS_FIELDS) == re.findall(r"u64 (\w+);", body[1])


@pytest.mark.parametrize(
    ("value", "macro"),
    [
        (layout.MAX_CGROUPS, "TC_MAX_CGROUPS"),
        (layout.SLOTS, "TC_SLOTS"),
        (layout.OTHER_SLOT, "TC_OTHER"),
        (layout.IDLE_SLOT, "TC_IDLE"),
        (layout.FIRST_FREE_SLOT, "TC_FIRST_FREE"),
    ],
)
def test_limits_are_the_same(value: int, macro: str) -> None:
    """Sizes of tables and reserved slots agree."""
    assert defined(macro) == value


def test_configuration_lies_as_c_reads_it() -> None:
    """The hierarchy comes first, the classes of the system calls follow."""
    waits = bytes(range(256)) * 2
    raw = layout.config(Hierarchy.CPU_CONTROLLER, waits)
    assert b"\x01\0\0\0" + b"\0\0\0\0" + waits == raw


def test_counters_are_named() -> None:
    """A .bss section becomes a number by name, what follows the struct is left alone."""
    raw = layout.STATS.pack(*range(len(STATS_FIELDS))) + b"\xff" * 8
    assert dict(zip(STATS_FIELDS, range(len(STATS_FIELDS)), strict=True)) == layout.stats(raw)
