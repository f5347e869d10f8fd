"""Cgroup paths that container runtimes make, and small machines laid out with them.

Written after the documented layouts of the kubelet's cgroup drivers, containerd, cri-o, docker, podman, kind and systemd,
not captured: the ids are made up.
"""

from dataclasses import dataclass
from pathlib import Path

from agent.host.containers import Identity
from agent.host.paths import HostPaths

ID = "4f1c0d9a8b7e6f5d4c3b2a1908f7e6d5c4b3a29180f7e6d5c4b3a2918070f6e5"
NODE = "0" * 63 + "a"
"""The container that is a node of kind."""
UID = "8a5f3c1e-2b4d-4c6e-9f80-1a2b3c4d5e6f"
UID_ = UID.replace("-", "_")
HASH = "d41d8cd98f00b204e9800998ecf8427e"
"""A static pod's: no dashes."""
PID = 4242

_BURSTABLE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice"
_GUARANTEED = f"/kubepods.slice/kubepods-pod{UID_}.slice"
_USER = "/user.slice/user-1000.slice/user@1000.service"
_KIND = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"


@dataclass(frozen=True)
class Layout:
    """One way to run a container: where its processes live, and whose they are."""

    name: str
    path: str
    identity: Identity


LAYOUTS: tuple[Layout, ...] = (
    Layout("docker-systemd", f"/system.slice/docker-{ID}.scope", Identity(ID, "", "docker")),
    Layout("docker-cgroupfs", f"/docker/{ID}", Identity(ID, "", "docker")),
    Layout("docker-init-inside", f"/docker/{ID}/init.scope", Identity(ID, "", "docker")),
    Layout("docker-rootless", f"{_USER}/user.slice/docker-{ID}.scope", Identity(ID, "", "docker")),
    Layout("nerdctl", f"/system.slice/nerdctl-{ID}.scope", Identity(ID, "", "containerd")),
    Layout(
        "containerd-systemd",
        f"{_BURSTABLE}/cri-containerd-{ID}.scope",
        Identity(ID, UID, "containerd", "burstable"),
    ),
    Layout(
        "containerd-cgroupfs",
        f"/kubepods/burstable/pod{UID}/{ID}",
        Identity(ID, UID, "", "burstable"),
    ),
    Layout(
        "containerd-colons",
        f"/system.slice/containerd.service/kubepods-besteffort-pod{UID_}.slice:cri-containerd:{ID}",
        Identity(ID, UID, "containerd", "besteffort"),
    ),
    Layout(
        "crio-systemd",
        f"{_GUARANTEED}/crio-{ID}.scope",
        Identity(ID, UID, "cri-o", "guaranteed"),
    ),
    Layout(
        "crio-crun",
        f"{_BURSTABLE}/crio-{ID}.scope/container",
        Identity(ID, UID, "cri-o", "burstable"),
    ),
    Layout(
        "crio-cgroupfs",
        f"/kubepods/besteffort/pod{UID}/crio-{ID}",
        Identity(ID, UID, "cri-o", "besteffort"),
    ),
    Layout(
        "crio-monitor",
        f"{_BURSTABLE}/crio-conmon-{ID}.scope",
        Identity("", UID, "", "burstable"),
    ),
    Layout(
        "cri-dockerd",
        f"{_GUARANTEED}/docker-{ID}.scope",
        Identity(ID, UID, "docker", "guaranteed"),
    ),
    Layout("static-pod", f"/kubepods/pod{HASH}/{ID}", Identity(ID, HASH, "", "guaranteed")),
    Layout(
        "static-pod-systemd",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{HASH}.slice/crio-{ID}.scope",
        Identity(ID, HASH, "cri-o", "burstable"),
    ),
    Layout("podman-systemd", f"/machine.slice/libpod-{ID}.scope", Identity(ID, "", "podman")),
    Layout(
        "podman-crun", f"/machine.slice/libpod-{ID}.scope/container", Identity(ID, "", "podman")
    ),
    Layout("podman-cgroupfs", f"/libpod_parent/libpod-{ID}", Identity(ID, "", "podman")),
    Layout(
        "podman-pod",
        f"/machine.slice/machine-libpod_pod_{NODE}.slice/libpod-{ID}.scope",
        Identity(ID, "", "podman"),
    ),
    Layout(
        "podman-rootless",
        f"{_USER}/user.slice/libpod-{ID}.scope/container",
        Identity(ID, "", "podman"),
    ),
    Layout(
        "podman-quadlet",
        f"/system.slice/web.service/libpod-payload-{ID}",
        Identity(ID, "", "podman"),
    ),
    Layout("podman-monitor", f"/machine.slice/libpod-conmon-{ID}.scope", Identity()),
    Layout(
        "kind-cgroupfs",
        f"/docker/{NODE}/kubelet/kubepods/burstable/pod{UID}/{ID}",
        Identity(ID, UID, "", "burstable"),
    ),
    Layout(
        "kind-systemd",
        f"/system.slice/docker-{NODE}.scope{_KIND}/kubelet-kubepods-besteffort-pod{UID_}.slice"
        f"/cri-containerd-{ID}.scope",
        Identity(ID, UID, "containerd", "besteffort"),
    ),
    Layout(
        "docker-in-a-pod",
        f"{_BURSTABLE}/cri-containerd-{NODE}.scope/docker/{ID}",
        Identity(ID, UID, "docker", "burstable"),
    ),
    Layout(
        "nspawn",
        "/machine.slice/systemd-nspawn@web.service/payload",
        Identity("web", "", "systemd-nspawn"),
    ),
    Layout("service", "/system.slice/sshd.service", Identity()),
    Layout("image-mount", f"/system.slice/var-lib-docker-overlay2-{ID}-merged.mount", Identity()),
    Layout("other-hash", f"/x{ID}", Identity()),
)

_MOUNT = "{n} 23 0:{n} / {at} rw - {kind} cgroup rw,{options}\n"
_V1 = ("cpu", "cpuacct", "memory", "blkio", "pids")
VERSIONS = ("v1", "v2", "hybrid")


def machine(root: Path, layout: Layout, version: str) -> HostPaths:
    """Lay out procfs and cgroups of a machine on which one process runs in a container."""
    v1 = _V1 if version != "v2" else ()
    unified = {"v1": [], "v2": [""], "hybrid": ["unified"]}[version]
    at = "/sys/fs/cgroup/{}".format
    lines = [
        _MOUNT.format(n=n, at=at(name), kind="cgroup", options=name)
        for n, name in enumerate(v1, 30)
    ]
    lines += [
        _MOUNT.format(n=50, at=at(name).rstrip("/"), kind="cgroup2", options="nsdelegate")
        for name in unified
    ]
    membership = [f"{n}:{name}:{layout.path}\n" for n, name in enumerate(v1, 1)]
    membership += [f"0::{layout.path}\n" for _ in unified]
    _write(root / "proc/1/mountinfo", "".join(lines))
    _write(root / "proc/stat", "cpu 1 0 0 0\nbtime 1796108400\n")
    _write(root / f"proc/{PID}/cgroup", "".join(membership))
    _write(root / f"proc/{PID}/status", f"Name:\tserve\nNSpid:\t{PID}\n")
    _write(root / f"proc/{PID}/stat", f"{PID} (serve) S {'0 ' * 18}88100 {'0 ' * 30}\n")
    for name in v1:
        _fill(root / "cgroup" / name / layout.path[1:], _V1_FILES[name])
    for name in unified:
        _fill(root / "cgroup" / name / layout.path[1:], _V2_FILES if not v1 else _PRESSURE)
    return HostPaths(root / "proc", root / "cgroup")


def _fill(directory: Path, files: dict[str, str]) -> None:
    for name, text in {**files, "cgroup.procs": f"{PID}\n"}.items():
        _write(directory / name, text)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


_STALLED = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n"
_PRESSURE = {f"{resource}.pressure": _STALLED for resource in ("cpu", "memory", "io")}
_THREADS = {"pids.current": "6\n", "pids.max": "max\n"}
_V1_FILES: dict[str, dict[str, str]] = {
    "cpu": {
        "cpu.stat": "nr_periods 410\nnr_throttled 400\nthrottled_time 32430000000\n",
        "cpu.cfs_quota_us": "20000\n",
        "cpu.cfs_period_us": "100000\n",
        "cpu.shares": "1024\n",
    },
    "cpuacct": {"cpuacct.usage": "2500000000\n"},
    "memory": {"memory.usage_in_bytes": "8192\n", "memory.stat": "total_inactive_file 4096\n"},
    "blkio": {"blkio.throttle.io_service_bytes": "254:0 Read 512\n254:0 Total 512\nTotal 512\n"},
    "pids": _THREADS,
}
_V2_FILES = {
    "cpu.stat": "usage_usec 2500000\nnr_periods 410\nnr_throttled 400\nthrottled_usec 32430000\n",
    "cpu.max": "20000 100000\n",
    "cpu.weight": "100\n",
    "memory.current": "8192\n",
    "memory.stat": "inactive_file 4096\n",
    "io.stat": "254:0 rbytes=512\n",
    **_THREADS,
    **_PRESSURE,
}
