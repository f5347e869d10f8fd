"""A limit on what one cgroup may read from a disk (v1 blkio-controller.rst, v2 cgroup-v2.rst)."""

import os
from pathlib import Path

from kernels.supervisor.cgroups import Cgroup, CgroupError
from kernels.supervisor.files import write_existing

_BY_NUMBER = Path("/sys/dev/block")


class DiskGroup:
    """The io controller's view of a cgroup, for one whole disk."""

    def __init__(self, cgroup: Cgroup, disk: str) -> None:
        ruled = cgroup.ruled_by("blkio", "io")
        self._v2 = ruled.v2
        self._disk = disk
        name = "io.max" if ruled.v2 else "blkio.throttle.read_bps_device"
        self.limit_file = ruled.directory / name

    @property
    def no_limit_text(self) -> str:
        """What lifts a limit."""
        return f"{self._disk} rbps=max" if self._v2 else f"{self._disk} 0"

    def set_read_limit(self, bytes_per_s: int) -> None:
        """Put a limit on reads in force."""
        value = f"rbps={bytes_per_s}" if self._v2 else str(bytes_per_s)
        try:
            write_existing(self.limit_file, f"{self._disk} {value}")
        except OSError as exc:
            raise CgroupError(
                f"cannot write {self.limit_file}: {exc.strerror} (needs root)"
            ) from exc


def disk_under(path: Path) -> str:
    """Return `MAJOR:MINOR` of the whole disk that a file lies on: limits are per disk, not per partition."""
    number = path.stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    device = _BY_NUMBER / name
    if not device.exists():
        raise CgroupError(
            f"{path} lies on no disk of its own (tmpfs, overlay, btrfs …): move it to ext4 or xfs"
        )
    if (device / "partition").exists():
        return (device.resolve().parent / "dev").read_text().strip()
    return name
