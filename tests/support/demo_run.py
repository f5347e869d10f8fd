"""Runs `tailcause demo` as a user does, and looks for what it left behind."""

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MARK = "TAILCAUSE_TEST_MARK"


@dataclass
class DemoRun:
    """One demo as a process; all that it starts inherits a mark in its environment."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    process: "subprocess.Popen[bytes] | None" = None

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start the demo with its run folder in `folder`."""
        command = [sys.executable, "-m", "detector.cli.main", "demo", *arguments]
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [*command, "--run-dir", str(self.run_dir)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env={**os.environ, _MARK: self.mark, "TAILCAUSE_STATE": str(self.folder)},
            )  # fmt: skip
        return self.process

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return self.folder / "run"

    @property
    def out(self) -> str:
        """What it printed so far."""
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        """What it told so far."""
        return (self.folder / "err").read_text()

    def record(self) -> dict[str, Any]:
        """Read `run.json`; empty before it is written."""
        try:
            loaded: dict[str, Any] = json.loads((self.run_dir / "run.json").read_text())
        except OSError:
            return {}
        return loaded

    def wait_until(self, reached: Callable[[], bool], within_s: float) -> None:
        """Wait for a state of the run while it lives."""
        deadline = time.monotonic() + within_s
        while not reached():
            assert self.process is not None
            assert self.process.poll() is None, f"the demo ended: {self.err}"
            assert time.monotonic() < deadline, f"not reached in {within_s} s: {self.err}"
            time.sleep(0.1)

    def left_behind(self, within_s: float) -> list[str]:
        """Return what is still there of the run after a while."""
        deadline = time.monotonic() + within_s
        while (left := [*self._processes(), *self._cgroups(), *self._ports()]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.1)
        return left

    def end(self) -> None:
        """Make sure that nothing goes on after a failed test."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _processes(self) -> list[str]:
        wanted = f"{_MARK}={self.mark}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if wanted in (folder / "environ").read_bytes():
                        words = (folder / "cmdline").read_bytes().decode().split("\0")
                        found.append(f"process {folder.name} {' '.join(words)}")
                except OSError:
                    continue
        return found

    def _cgroups(self) -> list[str]:
        path = self.record().get("cgroup")
        if not path:
            return []
        mounts = [
            Path(line.split()[4])
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if line.partition(" - ")[2].startswith("cgroup")
        ]
        group = Path(path).parent.relative_to("/")
        return [f"cgroup {mount / group}" for mount in mounts if (mount / group).exists()]

    def _ports(self) -> list[str]:
        found = []
        for name, port in self.record().get("ports", {}).items():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    found.append(f"port {port} of {name}")
        return found
