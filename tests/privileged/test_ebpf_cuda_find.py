"""Where the cuda probe finds the libraries: in processes, executables, other mount namespaces, overlays, wheels."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ebpf.probes.cuda import Cuda
from ebpf.probes.sched import Sched
from tests.support.cuda_calls import ASKED, calls, triangle
from tests.support.cuda_victim import CC, Victim, build_victim, victim_in_cgroup
from tests.support.probe_session import attached, needs_probes

pytestmark = [
    pytest.mark.privileged,
    needs_probes,
    pytest.mark.skipif(not CC, reason="needs a C compiler"),
]

WHEELS = {
    "nvidia-cuda-runtime-cu12": "nvidia/cuda_runtime/lib/libcudart.so.12",
    "nvidia-cuda-runtime": "nvidia/cu13/lib/libcudart.so.13",
}


def test_a_runtime_inside_of_the_executable_is_found(tmp_path: Path) -> None:
    """Statically linked functions are timed through the executable."""
    program = build_victim(tmp_path, {"cudaLaunchKernel": "PLAIN", "cudaMalloc": "PLAIN"})
    cuda = Cuda(ASKED)
    with victim_in_cgroup(program) as victim, attached(Sched(), cuda) as session:
        assert victim.call("cudaLaunchKernel", 211) == triangle(211)
        assert [carrier.path for carrier in cuda.carriers] == [str(program)]
        assert calls(session.read()["cuda"], victim) == {"cudaLaunchKernel": 211}


def test_a_library_loaded_later_is_found_and_one_that_is_gone_let_go(
    victim_program: Path, runtime: Path
) -> None:
    """A search after dlopen attaches; one after the last process has ended detaches."""
    cuda = Cuda(ASKED)
    with attached(Sched(), cuda) as session:
        with victim_in_cgroup(victim_program) as victim:
            assert cuda.carriers == []
            victim.load(runtime.with_name("libcuda.so.1"))
            cuda.search(5.0)
            victim.call("cuLaunchKernel", 23)
            assert calls(session.read()["cuda"], victim) == {"cuLaunchKernel": 23}
        cuda.search(5.0)
        assert cuda.carriers == []


def test_a_library_that_only_its_process_can_see_is_found(
    victim_program: Path, runtime: Path, tmp_path: Path
) -> None:
    """A file in another mount namespace, under a path that is something else in ours."""
    hidden = tmp_path / "private"
    hidden.mkdir()
    (hidden / "libcuda.so.1").write_text("not this one")
    driver = runtime.with_name("libcuda.so.1")
    script = f"mount -t tmpfs none {hidden} && cp {driver} {hidden}/ && exec {victim_program}"
    cuda = Cuda(ASKED)
    under = ("unshare", "--mount", "sh", "-c", f"{script} #")
    library = hidden / "libcuda.so.1"
    with (
        victim_in_cgroup(victim_program, library, under=under) as victim,
        attached(Sched(), cuda) as session,
    ):
        victim.call("cuLaunchKernel", 41)
        assert calls(session.read()["cuda"], victim) == {"cuLaunchKernel": 41}


def real_runtime(folder: Path) -> Path:
    """Return NVIDIA's runtime from its wheel, from the cache where it is there."""
    cache = Path(os.environ.get("TAILCAUSE_CACHE") or Path.home() / ".cache/tailcause") / "wheels"
    for package, inside in WHEELS.items():
        pattern = package.replace("-", "_") + "-[0-9]*.whl"
        if not list(cache.glob(pattern)):
            cache.mkdir(parents=True, exist_ok=True)
            command = (
                sys.executable,
                "-m",
                "pip",
                "download",
                "-q",
                "--no-deps",
                "-d",
                cache,
                package,
            )
            subprocess.run(command, capture_output=True, timeout=120, check=False)
        for wheel in cache.glob(pattern):
            with zipfile.ZipFile(wheel) as archive:
                return Path(archive.extract(inside, folder))
    pytest.skip("needs the wheel nvidia-cuda-runtime-cu12 (a package index, or $TAILCAUSE_CACHE)")


def test_nvidias_own_runtime(victim_program: Path, tmp_path: Path) -> None:
    """Without a GPU its functions return errors, and each call is counted; none needs to be single-stepped."""
    library = real_runtime(tmp_path)
    cuda = Cuda(ASKED)
    expected = {
        "cudaLaunchKernel": 1009,
        "cudaMalloc": 997,
        "cudaDeviceSynchronize": 13,
        "cudaMemcpyAsync": 101,
    }
    with victim_in_cgroup(victim_program, library) as victim, attached(Sched(), cuda) as session:
        results = [victim.call(name, count) for name, count in expected.items()]
        readings = session.read()["cuda"]
        assert cuda.refusals == []
        again = [victim.call(name, count) for name, count in expected.items()]
    assert calls(readings, victim) == expected
    assert again == results


def test_a_file_in_two_overlays_is_not_counted_twice(
    victim_program: Path, runtime: Path, tmp_path: Path
) -> None:
    """Two containers of one image map the same file under two devices."""
    lower = tmp_path / "lower"
    lower.mkdir()
    shutil.copy(runtime.with_name("libcuda.so.1"), lower)
    merged = [_overlay(tmp_path, lower, number) for number in range(2)]
    try:
        one_file, other_file = (root / "libcuda.so.1" for root in merged)
        cuda = Cuda(ASKED)
        with victim_in_cgroup(victim_program, one_file) as one, Victim(victim_program) as other:
            other.load(other_file)
            with attached(Sched(), cuda) as session:
                assert len(cuda.carriers) in {1, 2}  # old kernels map the file below the overlay
                one.call("cuLaunchKernel", 1013)
                assert calls(session.read()["cuda"], one) == {"cuLaunchKernel": 1013}
    finally:
        for root in merged:
            subprocess.run(("umount", root), check=True)


def _overlay(folder: Path, lower: Path, number: int) -> Path:
    parts = {name: folder / f"{name}{number}" for name in ("upper", "work", "merged")}
    for part in parts.values():
        part.mkdir()
    options = f"lowerdir={lower},upperdir={parts['upper']},workdir={parts['work']}"
    command = ("mount", "-t", "overlay", "overlay", "-o", options, parts["merged"])
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs overlayfs")
    return parts["merged"]
