"""Container id, runtime, pod uid and QoS class from a cgroup path.

Covers docker, containerd, cri-o, podman and nerdctl under the systemd and the cgroupfs driver, containerd's
`slice:prefix:name` form, systemd-nspawn, and containers in containers (kind, docker in a pod): the last id wins. What
a runtime nests below its container (crun's `container`, systemd's `init.scope`) belongs to the container.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

_ID = re.compile(
    r"(?:^|[/:])(?:(?P<prefix>[a-z]+(?:-[a-z]+)*)[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=$|[/:])",
    re.MULTILINE,  # of a process with a path per controller
)
_NSPAWN = re.compile(r"/systemd-nspawn@(?P<name>[^/\n]+)\.service(?=$|/)", re.MULTILINE)
# Static pods have a hash without dashes; the systemd driver writes `_` for `-`.
_POD = re.compile(
    r"(?:^|[/:]|-)pod(?P<uid>[0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})"
    r"(?:\.slice)?(?=$|[/:])",
    re.MULTILINE,
)
_QOS = re.compile(r"[/-](?P<qos>burstable|besteffort)(?:\.slice)?[/-]")
_MONITORS = frozenset(("crio-conmon", "libpod-conmon"))
_RUNTIME_OF = {
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
}
_PARENTS = (("docker", "docker"), ("libpod_parent", "podman"))
"""With the cgroupfs driver the directory above names the runtime."""


@dataclass(frozen=True)
class Identity:
    """Whose cgroup it is; empty strings where the path does not tell."""

    container_id: str = ""
    pod_uid: str = ""
    runtime: str = ""
    qos: str = ""
    """The pod's class: `guaranteed`, `burstable` or `besteffort`."""


@lru_cache(maxsize=4096)
def identify(cgroup_path: str) -> Identity:
    """Return the container and pod that a cgroup path names."""
    container_id, runtime = _container(cgroup_path)
    pods = list(_POD.finditer(cgroup_path))
    if not pods:
        return Identity(container_id, "", runtime)
    before = cgroup_path[: pods[-1].start() + 1]
    classes = _QOS.findall(before)
    qos = classes[-1] if classes else "guaranteed"
    return Identity(container_id, pods[-1]["uid"].replace("_", "-"), runtime, qos)


def _container(path: str) -> tuple[str, str]:
    ids = [match for match in _ID.finditer(path) if match["prefix"] not in _MONITORS]
    machines = list(_NSPAWN.finditer(path))
    if machines and (not ids or ids[-1].start() < machines[-1].start()):
        return machines[-1]["name"], "systemd-nspawn"
    if not ids:
        return "", ""
    prefix = ids[-1]["prefix"] or ""
    above = path[: ids[-1].start()].rpartition("/")[2]
    return ids[-1]["id"], _RUNTIME_OF.get(prefix) or dict(_PARENTS).get(above, "")
