"""The real NVML binding in a process of its own, over the fake library and a scenario."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.fakenvml.scenario import Scenario
from kernels.fakenvml.status import Call, Status, read_status, read_trace

DRIVER = Path(__file__).with_name("nvml_driver.py")


class NvmlAnswerError(Exception):
    """What the binding raised: the name of the class, and its text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class NvmlSession:
    """A process with the binding: `ask` evaluates an expression there, `run` several lines.

    In them `n` is pynvml, `device(i)` and `mig_device(i, j)` are handles; `run` answers what the
    lines leave in `result`. The library is initialised unless `init` is false.
    """

    def __init__(
        self,
        library: Path,
        folder: Path,
        scenario: Scenario,
        *,
        init: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.scenario_path = folder / "scenario"
        self._status = folder / "status"
        self._status.mkdir(exist_ok=True)
        self._trace = folder / "trace"
        self.stage(scenario)
        ours = {
            "LD_LIBRARY_PATH": str(library.parent),
            "FAKENVML_SCENARIO": str(self.scenario_path),
            "FAKENVML_STATUS": str(self._status),
            "FAKENVML_TRACE": str(self._trace),
        }
        self._errors = (folder / "stderr").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **ours, **(environment or {})},
            text=True,
        )
        if init:
            self.ask("n.nvmlInit()")

    def stage(self, scenario: Scenario) -> None:
        """Put a scenario in force."""
        scenario.write(self.scenario_path)

    def ask(self, expression: str) -> Any:
        """Return the value of an expression; raises `NvmlAnswerError` as the binding does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(expression) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process died: {self._process.wait()}, {self.stderr()}")
        answer = json.loads(line)
        if "error" in answer:
            raise NvmlAnswerError(answer["error"], answer["text"])
        return answer["value"]

    def run(self, lines: str) -> Any:
        """Run lines and return their `result`."""
        return self.ask("\n" + lines)

    def outcome(self, expression: str) -> Any:
        """Return the value, or the name of the error."""
        try:
            return self.ask(expression)
        except NvmlAnswerError as failure:
            return failure.name

    def status(self) -> Status:
        """Return what the process has not given back."""
        return read_status(self._status)[self._process.pid]

    def calls(self) -> list[Call]:
        """Return the calls that have ended."""
        return read_trace(self._trace)

    def stderr(self) -> str:
        """Return what the library has said there."""
        self._errors.flush()
        self._errors.seek(0)
        return self._errors.read().decode()

    def close(self) -> int:
        """End the process and return its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(30)
        finally:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdout, self._errors):
                if stream is not None:
                    stream.close()
        return status
