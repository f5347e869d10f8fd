"""Container id and pod uid from a cgroup path.

Covers docker, containerd, cri-o and podman under the systemd and the cgroupfs driver, containerd's
`slice:prefix:name` form, and kind's containers in a container: the last id wins.
"""

import re
from dataclasses import dataclass

_ID = re.compile(
    r"(?:^|[/:])(?:(?P<prefix>[a-z]+(?:-[a-z]+)*)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=$|[/:])"
)
_POD = re.compile(
    r"(?:^|[/:]|-)pod(?P<uid>[0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})"
    r"(?:\.slice)?(?=$|[/:])"
)
_MONITORS = frozenset(("crio-conmon", "libpod-conmon"))


@dataclass(frozen=True)
class Identity:
    """Whose cgroup it is; empty strings where the path does not tell."""

    container_id: str = ""
    pod_uid: str = ""


def identify(cgroup_path: str) -> Identity:
    """Return the container and pod that a cgroup path names."""
    ids = [match["id"] for match in _ID.finditer(cgroup_path) if match["prefix"] not in _MONITORS]
    pods = [match["uid"].replace("_", "-") for match in _POD.finditer(cgroup_path)]
    return Identity(ids[-1] if ids else "", pods[-1] if pods else "")
