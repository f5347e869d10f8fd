"""Builds the stub of CUDA and a program that calls it, and talks to that program."""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.kernel_workloads import cgroups

HERE = Path(__file__).parent / "cuda_stub"
CC = shutil.which("cc") or ""
_FLAGS = (
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fcf-protection=none",
    "-fPIC",
    "-Wall",
    "-Werror",
)
Functions = Mapping[str, str]
"""Name → what it does: PLAIN, SPINNING, BLOCKING, STEPPED, GUARDED, or the function that it calls ("+": with work of its own after)."""


def build_library(folder: Path, name: str, functions: Functions, *links: Path) -> Path:
    """Compile a stub library; what it calls in others comes from `links`."""
    _write_functions(folder, functions)
    made = folder / name
    _cc(
        "-shared",
        f"-I{folder}",
        str(HERE / "stub.c"),
        *map(str, links),
        "-o",
        str(made),
        "-pthread",
    )
    return made


def build_victim(folder: Path, functions: Functions | None = None) -> Path:
    """Compile the program; with the functions inside of it when there are any."""
    made = folder / ("victim-static" if functions else "victim")
    extra: tuple[str, ...] = ()
    if functions:
        _write_functions(folder, functions)
        extra = (f"-I{folder}", str(HERE / "stub.c"), "-rdynamic")
    _cc(str(HERE / "victim.c"), *extra, "-o", str(made), "-ldl", "-pthread")
    return made


def _write_functions(folder: Path, functions: Functions) -> None:
    lines = [_macro(name, kind) for name, kind in functions.items()]
    (folder / "functions.h").write_text("\n".join(lines) + "\n")


def _macro(name: str, kind: str) -> str:
    if kind.isupper():
        return f"{kind}({name})"
    return f"FINISHING({name}, {kind[:-1]})" if kind.endswith("+") else f"CALLING({name}, {kind})"


def _cc(*arguments: str) -> None:
    subprocess.run((CC, *_FLAGS, *arguments), check=True)


@dataclass(frozen=True)
class Spent:
    """What a span's thread measured by itself."""

    wall_s: float
    cpu_s: float


class Victim:
    """A running program that calls what it is told to."""

    cgroup = "/"
    """Where it runs."""
    took_s = 0.0
    """How long the last `call` took, by its own clock."""

    def __init__(self, program: Path, *, under: Iterable[str] = ()) -> None:
        self._process = subprocess.Popen(
            (*under, str(program)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
        )
        assert self._answer() == "ready"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def load(self, library: Path) -> None:
        """Let it dlopen a library."""
        assert self._ask(f"load {library}") == "loaded"

    def call(self, name: str, count: int, argument: int = 0) -> int:
        """Let it call a function; return the sum of the results."""
        total, wall_ns = self._ask(f"call {name} {count} {argument}").split()
        self.took_s = int(wall_ns) / 1e9
        return int(total)

    def span(self, span_id: int, name: str, argument: int) -> Spent:
        """Let it call a function in a span; return what it measured itself."""
        self.begin_span(span_id, name, argument)
        return self.end_span()

    def start(self, name: str, argument: int = 0) -> None:
        """Let it call a function again and again on a thread of its own."""
        assert self._ask(f"start {name} {argument}") == "started"

    def stop(self) -> tuple[int, int]:
        """End that; return how often it called, and the sum of the results."""
        calls, total = self._ask("stop").split()
        return int(calls), int(total)

    def finish(self) -> int:
        """Let it end; return its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(10)

    def begin_span(self, span_id: int, name: str, argument: int) -> None:
        """Let it call a function in a span; `end_span` returns when that is over."""
        self._say(f"span {span_id} {name} {argument}")

    def end_span(self) -> Spent:
        """Return what it measured itself."""
        wall_ns, cpu_ns = self._answer().split()
        return Spent(int(wall_ns) / 1e9, int(cpu_ns) / 1e9)

    def _ask(self, line: str) -> str:
        self._say(line)
        return self._answer()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def victim_in_cgroup(
    program: Path, *libraries: Path, under: Iterable[str] = ()
) -> Iterator[Victim]:
    """Start a victim in a cgroup of its own and let it load libraries."""
    with cgroups("victim") as (cgroup,), Victim(program, under=under) as victim:
        cgroup.add(victim.pid)
        victim.cgroup = cgroup.path
        for library in libraries:
            victim.load(library)
        yield victim
