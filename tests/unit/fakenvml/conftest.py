"""The fake NVML, compiled, and processes that use it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kernels.fakenvml import build
from kernels.fakenvml.scenario import Scenario
from tests.support.nvml_session import NvmlSession


@pytest.fixture(scope="session")
def nvml_library() -> Path:
    """Compile the library, or skip where nothing can."""
    if build.find_compiler() is None:
        pytest.skip("needs a C compiler")
    return build.library()


@pytest.fixture
def start(nvml_library: Path, tmp_path: Path) -> Iterator[Callable[[Scenario], NvmlSession]]:
    """Start a process with the binding over a scenario; it ends with the test."""
    with ExitStack() as stack:

        def begin(scenario: Scenario) -> NvmlSession:
            session = NvmlSession(nvml_library, tmp_path, scenario)
            stack.callback(session.close)
            return session

        yield begin
