"""Victims for the probes of libraries, and a copy of the span library, for the tests that ask for them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpf.probes.sched import Sched
from ebpf.session import BUILT
from tests.support.cuda_calls import build_runtime
from tests.support.cuda_victim import Victim, build_victim, victim_in_cgroup
from tests.support.probe_session import attached
from tests.support.span_calls import Spans


@pytest.fixture(scope="module")
def victim_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the program that calls what it is told to."""
    return build_victim(tmp_path_factory.mktemp("victim"))


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a stub of the runtime that calls a stub of the driver."""
    return build_runtime(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def victim(victim_program: Path, runtime: Path) -> Iterator[Victim]:
    """Start a process in a cgroup of its own that has loaded both."""
    with victim_in_cgroup(victim_program, runtime.with_name("libcuda.so.1"), runtime) as started:
        yield started


@pytest.fixture
def span_library(tmp_path: Path) -> Path:
    """Copy the span library: nobody else's spans go through this one."""
    if not (BUILT / "libtailcause_span.so").exists():
        pytest.skip("needs the span library (a C compiler)")
    return Path(shutil.copy(BUILT / "libtailcause_span.so", tmp_path))


@pytest.fixture
def spans(span_library: Path) -> Iterator[Spans]:
    """Attach the probes to a copy of the library that nobody else calls."""
    ready = Spans(span_library)
    with attached(Sched(), ready.probe):
        yield ready
