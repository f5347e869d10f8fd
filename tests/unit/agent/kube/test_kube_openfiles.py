"""Who has a GPU open is read from procfs: written after the NVIDIA driver's README."""

import os
from pathlib import Path

from agent.host.paths import HostPaths
from agent.kube.openfiles import gpu_uuids, holders
from tests.support.nvidia_procfs import machine, process

GPUS = ("GPU-00000000-0000-0000-0000-000000000000", "GPU-11111111-1111-1111-1111-111111111111")


def test_minors_are_not_the_order_of_the_bus(tmp_path: Path) -> None:
    """The device's number is what the driver says, not the place on the bus."""
    paths = machine(tmp_path, {GPUS[0]: 1, GPUS[1]: 0})
    assert gpu_uuids(paths) == {1: GPUS[0], 0: GPUS[1]}


def test_gpu_that_is_not_up_yet(tmp_path: Path) -> None:
    """A GPU that has no UUID yet is unknown."""
    unset = "GPU-????????-????-????-????-????????????"
    assert gpu_uuids(machine(tmp_path, {unset: 0})) == {}


def test_no_driver(tmp_path: Path) -> None:
    """Without the driver there is nothing to look for."""
    assert gpu_uuids(machine(tmp_path, {})) == {}


def test_processes_with_an_open_gpu(tmp_path: Path) -> None:
    """Only the GPU's own device counts, not the control device or what looks like it."""
    paths = machine(tmp_path, dict(zip(GPUS, (0, 10), strict=True)))
    process(paths, 10, "/dev/null", "/dev/nvidiactl", "/dev/nvidia0", "socket:[7]", "/dev/nvidia0")
    process(paths, 11, "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1", "/home/dev/nvidia0")
    process(paths, 12, "/dev/nvidia0", "/dev/nvidia10", "/dev/nvidia7")
    process(paths, 13)
    (paths.procfs / "14").mkdir()
    found = holders(paths, gpu_uuids(paths))
    assert found.pids == {GPUS[0]: {10, 12}, GPUS[1]: {12}}
    assert (found.unreadable, found.too_many) == (0, 0)


def test_own_process_is_read_as_it_is(tmp_path: Path) -> None:
    """The files of a real process are looked at without harm."""
    with (tmp_path / "file").open("w"):
        found = holders(HostPaths(), {0: GPUS[0]})
    assert os.getpid() not in found.pids.get(GPUS[0], set())
