"""Where the kernel's file systems are mounted, for a container, a fixture, or the host itself."""

from dataclasses import dataclass
from pathlib import Path

DEFAULT_PROCFS = Path("/proc")
DEFAULT_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class HostPaths:
    """Roots of the pseudo file systems; in a container, where those of the host are mounted."""

    procfs: Path = DEFAULT_PROCFS
    cgroup: Path = DEFAULT_CGROUP

    @property
    def mountinfo(self) -> Path:
        """Return the mount table that names the cgroup hierarchies: of the host's first process.

        `self` in a procfs that is mounted from elsewhere would be the agent in its own container.
        """
        return self.procfs / self.owner / "mountinfo"

    @property
    def owner(self) -> str:
        """Return the process of procfs whose mounts and network are the host's."""
        return "self" if self.procfs == DEFAULT_PROCFS else "1"

    @property
    def sysfs(self) -> Path:
        """Return where sysfs is: beside procfs, as on the host itself (`/host/proc` and `/host/sys`)."""
        return self.procfs.parent / "sys"

    def mounted(self, mount_point: str) -> Path:
        """Return where a cgroup mount of the host is to be found from here."""
        path = Path(mount_point)
        if path.is_relative_to(DEFAULT_CGROUP):
            return self.cgroup / path.relative_to(DEFAULT_CGROUP)
        return path
