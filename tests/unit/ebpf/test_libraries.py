"""Finding the libraries that processes have really mapped; and the parts of ELF files that this needs."""

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ebpf.elf import build_id, functions, mentions
from ebpf.errors import NotSupportedError
from ebpf.libraries import Carrier, LibraryFinder, Limits, Wanted
from tests.support.cuda_victim import CC, Victim, build_library, build_victim

pytestmark = pytest.mark.skipif(not CC, reason="needs a C compiler")

WANTED = Wanted(("libcuda.so",), frozenset({"cuLaunchKernel", "cuMemAlloc"}), ("cuLaunchKernel",))
FUNCTIONS = {"cuLaunchKernel": "PLAIN", "cuMemAlloc": "PLAIN", "cuSomethingElse": "PLAIN"}


@dataclass
class Visits:
    """Remembers what was found by one process, and that it could be opened."""

    pid: int
    seen: list[Carrier] = field(default_factory=list)

    def visit(self, carrier: Carrier, file: Path) -> None:
        """Take a find."""
        if carrier.pid == self.pid:
            assert file.read_bytes()[:4] == b"\x7fELF"
            self.seen.append(carrier)


def ignore(_carrier: Carrier, _file: Path) -> None:
    """Take a find and do nothing."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a program that loads what it is told to."""
    return build_victim(tmp_path_factory.mktemp("victim"))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Compile a library with two wanted functions and one that is not."""
    return build_library(tmp_path, "libcuda.so.1", FUNCTIONS)


@contextmanager
def only(pid: int, folder: Path) -> Iterator[Path]:
    """Make a /proc with one process, which is the real one."""
    proc = folder / "proc"
    proc.mkdir(exist_ok=True)
    link = proc / str(pid)
    link.symlink_to(f"/proc/{pid}")
    yield proc
    link.unlink()


def test_a_mapped_library_is_found_with_its_wanted_functions(
    program: Path, library: Path, tmp_path: Path
) -> None:
    """Once, with the place in the file and the build."""
    with Victim(program) as victim, only(victim.pid, tmp_path) as proc:
        victim.load(library)
        finder, visits = LibraryFinder(WANTED, proc), Visits(victim.pid)
        assert finder.search(visits.visit, 10.0) == []
        assert finder.search(visits.visit, 10.0) == []
    (found,) = visits.seen
    status = library.stat()
    assert found.path == str(library)
    assert (found.identity.device, found.identity.inode) == (status.st_dev, status.st_ino)
    assert found.identity.build_id == build_id(library) != ""
    assert {s.name for s in found.functions} == WANTED.functions


def test_a_library_loaded_later_is_found_by_the_next_search(
    program: Path, library: Path, tmp_path: Path
) -> None:
    """A process that had nothing is looked at again."""
    with Victim(program) as victim, only(victim.pid, tmp_path) as proc:
        finder, visits = LibraryFinder(WANTED, proc), Visits(victim.pid)
        finder.search(visits.visit, 10.0)
        assert visits.seen == []
        victim.load(library)
        finder.search(visits.visit, 10.0)
        assert [carrier.path for carrier in visits.seen] == [str(library)]


def test_old_processes_are_looked_at_less_and_less(
    program: Path, library: Path, tmp_path: Path
) -> None:
    """What is loaded late is found after as long as the process had been known, and within a minute in the end."""
    now_s = [0.0]
    with Victim(program) as victim, only(victim.pid, tmp_path) as proc:
        finder = LibraryFinder(WANTED, proc, clock=lambda: now_s[0])
        visits = Visits(victim.pid)
        for second in (0, 2, 4, 8, 400):
            now_s[0] = float(second)
            finder.search(visits.visit)
        victim.load(library)
        now_s[0] = 459.0
        finder.search(visits.visit)
        assert visits.seen == []
        now_s[0] = 460.0
        finder.search(visits.visit)
        assert [carrier.path for carrier in visits.seen] == [str(library)]


def test_functions_inside_of_an_executable_are_found(tmp_path: Path) -> None:
    """A statically linked runtime has no file of its own."""
    program = build_victim(tmp_path, FUNCTIONS)
    with Victim(program) as victim, only(victim.pid, tmp_path) as proc:
        visits = Visits(victim.pid)
        LibraryFinder(WANTED, proc).search(visits.visit, 10.0)
    assert [carrier.path for carrier in visits.seen] == [str(program)]


def test_a_static_copy_in_another_library_of_the_process_is_found(
    program: Path, library: Path, tmp_path: Path
) -> None:
    """An extension module with the runtime inside, in a process that maps the driver."""
    folder = tmp_path / "extension"
    folder.mkdir()
    extension = build_library(folder, "_C.abi3.so", {"cuLaunchKernel": "PLAIN"})
    with Victim(program) as victim, only(victim.pid, tmp_path) as proc:
        victim.load(extension)
        visits = Visits(victim.pid)
        finder = LibraryFinder(WANTED, proc)
        finder.search(visits.visit, 10.0)
        assert visits.seen == []
        victim.load(library)
        finder.search(visits.visit, 10.0)
    assert {carrier.path for carrier in visits.seen} == {str(extension), str(library)}


def test_two_processes_with_one_file_are_one_find(
    program: Path, library: Path, tmp_path: Path
) -> None:
    """And it is let go when the second has ended, not the first."""
    with Victim(program) as first, only(first.pid, tmp_path) as proc:
        first.load(library)
        finder, visits = LibraryFinder(WANTED, proc), Visits(first.pid)
        with Victim(program) as second, only(second.pid, tmp_path):
            second.load(library)
            assert finder.search(visits.visit, 10.0) == []
            assert len(finder.carriers) == 1
        assert finder.search(visits.visit, 10.0) == []
    (gone,) = finder.search(visits.visit, 10.0)
    assert gone.path == str(library)
    assert finder.carriers == {}


def test_a_path_that_now_holds_another_file_is_not_taken_for_the_mapped_one(
    program: Path, library: Path, tmp_path: Path
) -> None:
    """An upgrade under a running process: the mapped file is meant, or none where it cannot be reached."""
    inode = library.stat().st_ino
    with Victim(program) as victim, only(victim.pid, tmp_path) as proc:
        victim.load(library)
        replacement = build_library(tmp_path, "new.so", {"cuLaunchKernel": "PLAIN"})
        replacement.rename(library)
        finder, visits = LibraryFinder(WANTED, proc), Visits(victim.pid)
        finder.search(visits.visit, 10.0)
    assert all(carrier.identity.inode == inode for carrier in visits.seen)
    assert len(visits.seen) == 1 or finder.counts.unreadable == 1


def test_a_search_stops_when_its_time_is_up_and_goes_on_later(
    program: Path, library: Path, tmp_path: Path
) -> None:
    """Two processes, time for one: the other comes next."""
    ticks = iter(range(1000))
    with Victim(program) as first, Victim(program) as second:
        first.load(library)
        other = tmp_path / "other"
        other.mkdir()
        second.load(build_library(other, "libcuda.so.1", FUNCTIONS))
        with only(first.pid, tmp_path) as proc, only(second.pid, tmp_path):
            finder = LibraryFinder(WANTED, proc, clock=lambda: float(next(ticks)))
            counts = []
            for _ in range(40):
                finder.search(ignore, 3.0)
                counts.append(len(finder.carriers))
    assert counts[0] == 0
    assert counts[-1] == 2


def test_carriers_beyond_the_limit_are_counted(
    program: Path, library: Path, tmp_path: Path
) -> None:
    """And left alone."""
    with Victim(program) as victim, only(victim.pid, tmp_path) as proc:
        victim.load(library)
        finder = LibraryFinder(WANTED, proc, Limits(files=0))
        finder.search(ignore, 10.0)
    assert finder.carriers == {}
    assert finder.counts.too_many == 1


def test_a_file_that_is_not_elf_is_passed_over(program: Path, tmp_path: Path) -> None:
    """A process may map anything under any name."""
    fake = tmp_path / "libcuda.so.1"
    fake.write_bytes(b"cuLaunchKernel\0" * 400)
    script = (
        "import mmap, sys; f = open(sys.argv[1], 'rb');"
        "m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC); print(1, flush=True); input()"
    )
    with subprocess.Popen(
        (sys.executable, "-c", script, str(fake)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        visits = Visits(process.pid)
        with only(process.pid, tmp_path) as proc:
            finder = LibraryFinder(WANTED, proc)
            finder.search(visits.visit, 10.0)
        process.kill()
    assert visits.seen == []
    assert finder.counts.not_elf == 1


def test_a_process_that_has_gone_is_passed_over(tmp_path: Path) -> None:
    """Between the listing and the look."""
    proc = tmp_path / "proc"
    (proc / "999999").mkdir(parents=True)
    finder = LibraryFinder(WANTED, proc)
    assert finder.search(ignore, 10.0) == []


def test_a_build_id_is_the_one_that_readelf_prints(library: Path) -> None:
    """GNU's, as hex."""
    printed = subprocess.run(
        ("readelf", "--notes", library), capture_output=True, text=True, check=True
    ).stdout
    assert f"Build ID: {build_id(library)}\n" in printed


def test_a_mention_is_a_whole_name(library: Path) -> None:
    """The end of a longer name is one too, as linkers share strings: `functions` decides."""
    assert mentions(library, ["cuLaunchKernel"])
    assert not mentions(library, ["cuLaunchKern"])
    assert "cuLaunchKernel" in {symbol.name for symbol in functions(library)}


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\0\0", b"#!/bin/sh"])
def test_what_is_not_elf_is_not_supported(tmp_path: Path, content: bytes) -> None:
    """Named as such, also when it is empty."""
    broken = tmp_path / "broken.so"
    broken.write_bytes(content)
    for look in (build_id, lambda path: mentions(path, ["x"]), lambda path: list(functions(path))):
        with pytest.raises(NotSupportedError):
            look(broken)


def test_a_damaged_file_never_does_worse_than_not_supported(library: Path, tmp_path: Path) -> None:
    """Anyone may map a file made for us: 300 real ones with bytes changed in the tables."""
    image, dice = library.read_bytes(), random.Random(7)
    sections_at = int.from_bytes(image[40:48], "little")
    broken = tmp_path / "broken.so"
    for _ in range(300):
        damaged = bytearray(image)
        for _ in range(dice.randint(1, 8)):
            place = dice.choice([dice.randrange(64), dice.randrange(sections_at, len(image))])
            damaged[place] = dice.randrange(256)
        damaged[:5] = b"\x7fELF\x02"
        broken.write_bytes(damaged)
        for look in (
            build_id,
            lambda path: mentions(path, ["x"]),
            lambda path: list(functions(path)),
        ):
            with contextlib.suppress(NotSupportedError):
                look(broken)
