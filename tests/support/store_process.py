"""Real store servers for tests: started in a folder of their own, as nobody, killed and frozen with all their processes."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aiohttp.test_utils import unused_port

_READY_S = 60.0


def as_nobody(words: Sequence[str]) -> list[str]:
    """Give up root, which these servers refuse or should not have."""
    if os.geteuid() != 0:
        return list(words)
    drop = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs"]
    return [*drop, *words]


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder that nobody may write; pytest's own cannot be entered by others."""
    folder = Path(tempfile.mkdtemp(prefix="tcstore"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class StoreProcess:
    """A server on a port of its own that can be stopped and started again."""

    words: Sequence[str]
    log: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start it and return at once."""
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                as_nobody(self.words), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
            )

    def kill(self) -> None:
        """End it as a power cut does, with all that it has started."""
        if self.process is not None:
            self.signal(signal.SIGKILL)
            self.process.wait(30)
            self.process = None

    def signal(self, number: signal.Signals) -> None:
        """Signal the server and its children."""
        assert self.process is not None
        for pid in (self.process.pid, *_children(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop every one of its processes for the block: connections stay, nobody answers."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)


def wait_for_line(store: StoreProcess, text: str, since: int) -> None:
    """Wait until the server's log says this, after as many bytes as it had before."""
    deadline = time.monotonic() + _READY_S
    while text.encode() not in store.log.read_bytes()[since:]:
        assert store.process is not None
        assert store.process.poll() is None, store.log.read_text()[-2000:]
        assert time.monotonic() < deadline, store.log.read_text()[-2000:]
        time.sleep(0.02)


def free_port() -> int:
    """Find a port that nobody listens on."""
    return unused_port()


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_text().split())
    return found
