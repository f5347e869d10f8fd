"""Symbols of real ELF files: where they are and what they begin with."""

import platform
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ebpf.elf import functions, symbol_offset
from ebpf.errors import NotSupportedError

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
NM = shutil.which("nm")
NOP = bytes.fromhex("66666690")
SOURCE = """
int variable = 7;
static int hidden(int a) { return a + variable; }
int exported(int a) { return hidden(a) * 3; }
__attribute__((noinline)) int other(int a) { return a - 1; }
extern int elsewhere(int);
int calls(int a) { return elsewhere(a); }
"""

needs_compiler = pytest.mark.skipif(CC is None, reason="needs a C compiler")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Compile a small shared library."""
    source = tmp_path / "small.c"
    source.write_text(SOURCE)
    made = tmp_path / "libsmall.so"
    assert CC is not None
    subprocess.run([CC, "-O1", "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    return made


def said_by_nm(path: Path) -> dict[str, int]:
    """Return the addresses of the defined functions, as binutils reads them."""
    listing = subprocess.run([str(NM), "-D", str(path)], capture_output=True, text=True, check=True)
    return {
        line.split()[2]: int(line.split()[0], 16)
        for line in listing.stdout.splitlines()
        if re.match(r"[0-9a-f]+ T ", line)
    }


def offset_of_address(path: Path, address: int) -> int:
    """Translate an address through the program headers, by readelf."""
    listing = subprocess.run(
        ["readelf", "-lW", str(path)], capture_output=True, text=True, check=True
    )
    for line in listing.stdout.splitlines():
        words = line.split()
        if words[:1] == ["LOAD"]:
            offset, virtual, size = int(words[1], 16), int(words[2], 16), int(words[4], 16)
            if virtual <= address < virtual + size:
                return address - virtual + offset
    raise AssertionError(address)


@needs_compiler
@pytest.mark.skipif(NM is None, reason="needs binutils")
def test_offsets_are_those_of_binutils(library: Path) -> None:
    """Every exported function is found at the place that nm and readelf give."""
    expected = {name: offset_of_address(library, at) for name, at in said_by_nm(library).items()}
    found = {s.name: s.offset for s in functions(library)}
    assert expected == {name: found[name] for name in expected}
    assert {"exported", "other", "calls"} <= set(expected)


@needs_compiler
def test_first_bytes_are_the_files(library: Path) -> None:
    """A symbol comes with the code that lies at its offset."""
    symbol = next(s for s in functions(library) if s.name == "other")
    assert library.read_bytes()[symbol.offset : symbol.offset + 16] == symbol.code


@needs_compiler
def test_only_functions_that_are_there(library: Path) -> None:
    """Data and functions of other libraries are left out."""
    names = {symbol.name for symbol in functions(library)}
    assert {"variable", "elsewhere"}.isdisjoint(names)


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs x86-64")
def test_hooks_begin_with_a_nop(tmp_path: Path) -> None:
    """The span library's functions begin with a nop that makes their uprobes cheap, and is not five bytes long."""
    source = Path(__file__).parents[3] / "ebpf/hook/tailcause_span.c"
    made = tmp_path / "libtailcause_span.so"
    assert CC is not None
    flags = ["-O2", "-fPIC", "-shared", "-fcf-protection=none"]
    subprocess.run([CC, *flags, str(source), "-o", str(made)], check=True)
    codes = {s.name: s.code for s in functions(made) if s.name.startswith("tailcause_span_")}
    assert {"tailcause_span_start", "tailcause_span_end"} == set(codes)
    assert all(code.startswith(NOP) for code in codes.values())


def test_missing_function_is_said() -> None:
    """A function that a file does not have is not supported, by name."""
    with pytest.raises(NotSupportedError, match="no_such_function"):
        symbol_offset(Path(sys.executable).resolve(), "no_such_function")


def test_what_is_no_elf_file_is_said(tmp_path: Path) -> None:
    """A text file is refused."""
    path = tmp_path / "text"
    path.write_text("#!/bin/sh\n" * 20)
    with pytest.raises(NotSupportedError, match="no 64-bit ELF"):
        list(functions(path))


def test_damaged_file_is_said(tmp_path: Path) -> None:
    """A file whose section table points past its end is refused, not read."""
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 40, 1 << 40)
    struct.pack_into("<HH", header, 58, 64, 3)
    path = tmp_path / "damaged"
    path.write_bytes(header)
    with pytest.raises(NotSupportedError, match="damaged"):
        list(functions(path))


def test_truncated_header_is_said(tmp_path: Path) -> None:
    """A file that ends within its header is refused."""
    path = tmp_path / "truncated"
    path.write_bytes(b"\x7fELF\x02\x01")
    with pytest.raises(NotSupportedError, match="damaged"):
        list(functions(path))
