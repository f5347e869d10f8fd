"""What the NVIDIA driver and the processes that use it show in procfs: written after the driver's README."""

from pathlib import Path

from agent.host.paths import HostPaths

INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 123
GPU UUID: \t {uuid}
Video BIOS: \t ??.??.??.??.??
Bus Type: \t PCIe
DMA Size: \t 52 bits
Bus Location: \t 0000:{bus}:00.0
Device Minor: \t {minor}
GPU Excluded:\t No
"""


def machine(root: Path, minors: dict[str, int]) -> HostPaths:
    """Return a host with GPUs, given as device minors by UUID."""
    for place, (uuid, minor) in enumerate(minors.items()):
        folder = root / f"proc/driver/nvidia/gpus/0000:{place:02x}:00.0"
        folder.mkdir(parents=True)
        text = INFORMATION.format(uuid=uuid, minor=minor, bus=f"{place:02x}")
        (folder / "information").write_text(text)
    (root / "proc").mkdir(exist_ok=True)
    return HostPaths(root / "proc", root / "cgroup")


def process(paths: HostPaths, pid: int, *files: str) -> None:
    """Add a process with open files."""
    folder = paths.procfs / str(pid) / "fd"
    folder.mkdir(parents=True)
    for number, file in enumerate(files):
        (folder / str(number)).symlink_to(file)
