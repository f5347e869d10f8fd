"""Reads symbols of ELF files: where a uprobe goes, and what its first instruction is; and which build a file is.

Sources: the ELF-64 object file format; Documentation/trace/uprobetracer.rst (offsets are file offsets, not addresses).
"""

import mmap
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ebpf.errors import NotSupportedError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLES = {2, 11}  # SHT_SYMTAB, SHT_DYNSYM
_LOADED, _NOTE = 1, 4  # PT_LOAD, PT_NOTE
_NOTE_HEADER = struct.Struct("<III")
_BUILD_ID, _GNU = 3, b"GNU\0"  # NT_GNU_BUILD_ID
_MAX_TABLE_BYTES = 256 << 20
_MAX_NAME_BYTES = 4096
_FUNCTION = 2  # STT_FUNC


@dataclass(frozen=True)
class Symbol:
    """A function: its name and file offset, and the bytes that it begins with."""

    name: str
    offset: int
    code: bytes


def functions(path: Path) -> Iterator[Symbol]:
    """Yield the functions of an ELF file's symbol tables; raises NotSupportedError when it is not ELF-64."""
    with _image(path) as image:
        yield from _functions(image)


def symbol_offset(path: Path, name: str) -> int:
    """Return the file offset of a function; raises NotSupportedError when the file does not have it."""
    for symbol in functions(path):
        if symbol.name == name:
            return symbol.offset
    raise NotSupportedError(f"{path} has no function {name}")


def build_id(path: Path) -> str:
    """Return a file's GNU build id as hex, empty when it has none; raises NotSupportedError when it is not ELF-64."""
    with _image(path) as image:
        notes = (image[s[2] : s[2] + s[5]] for s in _segments(image, _NOTE))
        return next(filter(None, map(_build_id, notes)), "")


def mentions(path: Path, names: Iterable[str]) -> bool:
    """Tell whether a symbol table has any of these names, without going through it: most files have none."""
    wanted = [name.encode() + b"\0" for name in names]
    with _image(path) as image:
        sections = _sections(image)
        places = [_extent(sections[s[6]]) for s in sections if s[1] in _SYMBOL_TABLES]
        return any(image.find(name, *place) >= 0 for place in places for name in wanted)


@contextmanager
def _image(path: Path) -> Iterator[mmap.mmap]:
    """Map a file; anyone may have written it, so whatever does not fit together is named as damage."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            if image[:5] != b"\x7fELF\x02":
                raise NotSupportedError(f"{path} is no 64-bit ELF file")
            yield image
    except (struct.error, IndexError, OverflowError, ValueError) as exc:
        raise NotSupportedError(f"{path} is empty or a damaged ELF file") from exc


def _extent(section: tuple[int, ...]) -> tuple[int, int]:
    if section[5] > _MAX_TABLE_BYTES:
        raise ValueError("a table larger than any linker makes")
    return section[4], section[4] + section[5]


def _build_id(notes: bytes) -> str:
    place = 0
    while place + _NOTE_HEADER.size <= len(notes):
        name_bytes, value_bytes, kind = _NOTE_HEADER.unpack_from(notes, place)
        name_at = place + _NOTE_HEADER.size
        value_at = name_at + (name_bytes + 3) // 4 * 4
        if kind == _BUILD_ID and notes[name_at : name_at + name_bytes] == _GNU:
            return notes[value_at : value_at + value_bytes].hex()
        place = value_at + (value_bytes + 3) // 4 * 4
    return ""


def _segments(image: mmap.mmap, kind: int) -> list[tuple[int, ...]]:
    header = _HEADER.unpack_from(image)
    return [
        segment
        for index in range(header[10])
        if (segment := _SEGMENT.unpack_from(image, header[5] + index * header[9]))[0] == kind
    ]


def _sections(image: mmap.mmap) -> list[tuple[int, ...]]:
    header = _HEADER.unpack_from(image)
    return [
        _SECTION.unpack_from(image, header[6] + index * header[11]) for index in range(header[12])
    ]


def _functions(image: mmap.mmap) -> Iterator[Symbol]:
    segments, sections = _segments(image, _LOADED), _sections(image)
    seen = set()
    for section in sections:
        if section[1] not in _SYMBOL_TABLES:
            continue
        names_at = sections[section[6]][4]
        for place in range(*_extent(section), _SYMBOL.size):
            name_at, info, _, home, address, _ = _SYMBOL.unpack_from(image, place)
            if info & 0xF != _FUNCTION or home == 0 or not address:
                continue
            offset = _file_offset(segments, address)
            name = _name(image, names_at + name_at)
            if offset is not None and (name, offset) not in seen:
                seen.add((name, offset))
                yield Symbol(name, offset, image[offset : offset + 16])


def _name(image: mmap.mmap, place: int) -> str:
    return image[place : image.find(b"\0", place, place + _MAX_NAME_BYTES)].decode(errors="replace")


def _file_offset(segments: list[tuple[int, ...]], address: int) -> int | None:
    for _, _, offset, virtual, _, file_size, _, _ in segments:
        if virtual <= address < virtual + file_size:
            return address - virtual + offset
    return None
