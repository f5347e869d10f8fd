"""A block device of our own: a file behind a loop device, with room in the device for a few requests at a time."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
LOSETUP = shutil.which("losetup", path=PATH)
CONTROL = Path("/dev/loop-control")


@dataclass(frozen=True)
class DiskStats:
    """What the kernel itself counts of a device's reads (Documentation/block/stat.rst)."""

    reads: int
    took_s: float
    """All requests' times together, from their start to their completion."""


@dataclass(frozen=True)
class LoopDevice:
    """An attached loop device."""

    device: Path

    @property
    def name(self) -> str:
        """Its name in /sys/block."""
        return self.device.name

    def set(self, option: str, value: str) -> str:
        """Set an option of its queue; return what it was."""
        file = Path("/sys/block") / self.name / "queue" / option
        before = file.read_text()
        file.write_text(value)
        return before.partition("[")[2].partition("]")[0] or before

    def stats(self) -> DiskStats:
        """Read what the kernel has counted."""
        fields = (Path("/sys/block") / self.name / "stat").read_text().split()
        return DiskStats(int(fields[0]), int(fields[3]) / 1e3)


def why_no_loop_device() -> str:
    """Name what is missing here, or nothing."""
    if LOSETUP is None:
        return "needs losetup (mount)"
    return "" if CONTROL.exists() else "needs loop devices (modprobe loop)"


@contextmanager
def loop_device(folder: Path, size_bytes: int, depth: int) -> Iterator[LoopDevice]:
    """Attach a device that takes `depth` requests at a time; the others wait in its scheduler, unmerged."""
    backing = folder / "backing"
    backing.write_bytes(os.urandom(size_bytes))
    said = subprocess.run(
        (str(LOSETUP), "--find", "--show", str(backing)), check=True, capture_output=True, text=True
    )
    made = LoopDevice(Path(said.stdout.strip()))
    wanted = (
        ("iostats", "1"), ("nomerges", "2"), ("scheduler", "none"), ("nr_requests", str(depth)),
        ("scheduler", "mq-deadline"),
    )  # fmt: skip
    before = []
    try:
        before = [(option, made.set(option, value)) for option, value in wanted]
        yield made
    finally:
        for option, value in reversed(
            before
        ):  # the next to attach it finds the options as they were
            made.set(option, value)
        subprocess.run((str(LOSETUP), "--detach", str(made.device)), check=True)
