"""What of a host is read: by glob, where there may be more than anyone wants."""

import fnmatch
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

# What has no traffic of its own: memory, files, optical drives, and what lies on top of a disk (partitions, volumes,
# arrays), whose requests the disk counts again.
DISK_EXCLUDE = (
    "loop*", "ram*", "zram*", "fd[0-9]*", "sr[0-9]*", "dm-*", "md[0-9]*",
    "[hsv]d[a-z]*[0-9]", "xvd[a-z]*[0-9]", "nvme*n*p[0-9]*", "mmcblk*p[0-9]*",
)  # fmt: skip
# A container's end of a pair, and bridges and tunnels, whose packets the card counts again.
NETWORK_EXCLUDE = (
    "veth*", "docker*", "br-*", "virbr*", "cni*", "cali*", "cilium*", "lxc*", "flannel*", "tunl*", "vxlan*",
    "kube-*", "nodelocaldns*", "dummy*", "ifb*", "tap*",
)  # fmt: skip
EVERYTHING = ("*",)


@dataclass(frozen=True)
class Selection:
    """Globs of devices and interfaces that are left out, of cgroup paths that are read, and process names."""

    disk_exclude: tuple[str, ...] = DISK_EXCLUDE
    network_exclude: tuple[str, ...] = NETWORK_EXCLUDE
    cgroup_match: tuple[str, ...] = EVERYTHING
    """A glob that begins with `!` leaves out; `*` stands for slashes too."""
    process_names: tuple[str, ...] = ()

    @cached_property
    def disk(self) -> Callable[[str], bool]:
        """Return whether a disk of some name is read."""
        return _none_of(self.disk_exclude)

    @cached_property
    def interface(self) -> Callable[[str], bool]:
        """Return whether a network interface of some name is read."""
        return _none_of(self.network_exclude)

    @cached_property
    def cgroup(self) -> Callable[[str], bool]:
        """Return whether a cgroup of some path is read."""
        wanted = [glob for glob in self.cgroup_match if not glob.startswith("!")]
        unwanted = [glob[1:] for glob in self.cgroup_match if glob.startswith("!")]
        within, without = _any_of(wanted or EVERYTHING), _none_of(unwanted)
        return lambda path: within(path) and without(path)


def _any_of(globs: Iterable[str]) -> Callable[[str], bool]:
    pattern = re.compile("|".join(map(fnmatch.translate, globs)) or r"(?!)")
    return lambda name: pattern.match(name) is not None


def _none_of(globs: Iterable[str]) -> Callable[[str], bool]:
    excluded = _any_of(globs)
    return lambda name: not excluded(name)
