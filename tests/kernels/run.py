"""Boots Debian's stock kernel under emulation and runs the privileged eBPF tests there.

    python tests/kernels/run.py [--timeout S] [--kernel PACKAGE] [TEST …] [-- PYTEST ARGUMENT …]

No KVM is needed. The kernel comes from the distribution's archive into a cache ($TAILCAUSE_CACHE, else
~/.cache/tailcause) and is booted on this machine's own root, read-only: nothing is installed into an image, nothing
changes here. Two passes: all tests/privileged/test_ebpf_*.py on cgroup v2 with all controllers; then, with BTF hidden,
those of the bcc loader. Exit code: pytest's; 2 when the kernel cannot be booted.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
GUEST = Path(__file__).with_name("guest.sh")
WITHOUT_BTF = "tests/privileged/test_ebpf_bcc.py"
VIRTME = "virtme-ng==1.42"
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "depmod": "kmod",
    "mkfs.ext4": "e2fsprogs",
}
META_PACKAGE = "linux-image-amd64"
BOOT_S = 300.0


class CannotStartError(Exception):
    """What is missing, and what to do about it."""


@dataclass(frozen=True)
class Stock:
    """An unpacked kernel package."""

    root: Path
    release: str

    @property
    def image(self) -> Path:
        """The bootable file."""
        return self.root / f"boot/vmlinuz-{self.release}"


def cache() -> Path:
    """Return the cache's folder for kernels."""
    named = os.environ.get("TAILCAUSE_CACHE")
    return (Path(named) if named else Path.home() / ".cache/tailcause") / "kernels"


def say(text: str) -> None:
    """Tell what takes time."""
    sys.stderr.write(f"test-kernels: {text}\n")
    sys.stderr.flush()


def run(*command: str, cwd: Path | None = None) -> str:
    """Run a command; raises CannotStartError with its last words."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise CannotStartError(f"{shlex.join(command)}: {' / '.join(words)}")
    return done.stdout


def ensure_tools() -> None:
    """Install what is missing (as root, unless TAILCAUSE_NO_APT is set); raises CannotStartError."""
    if os.uname().machine != "x86_64":
        raise CannotStartError("the stock kernel is booted on x86_64 machines only")
    missing = [package for tool, package in TOOLS.items() if not _which(tool)]
    if not Path("/usr/lib/python3/dist-packages/bcc").exists():
        missing.append("python3-bpfcc")
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() or os.environ.get("TAILCAUSE_NO_APT") or not shutil.which("apt-get"):
        raise CannotStartError(f"missing system packages: run  {shlex.join(command)}")
    say(f"installing system packages: {' '.join(missing)}")
    run("apt-get", "update")
    run(*command)


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def fetch(meta_package: str) -> Stock:
    """Return the newest stock kernel of the archive with its headers, from the cache where it is there."""
    names = run("apt-cache", "depends", meta_package).split()
    image = next((name for name in names if re.match(r"linux-image-\d", name)), meta_package)
    release = image.removeprefix("linux-image-")
    root = cache() / release
    if not (root / ".complete").exists():
        say(f"fetching {image} and its headers (about 85 MB)")
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        _unpack(root, image, *_headers(release))
        run(_which("depmod") or "depmod", "-b", str(root), release)
        (root / ".complete").touch()
    return Stock(root, release)


def _headers(release: str) -> tuple[str, str]:
    """Return both halves of Debian's headers: linux-headers-6.1.0-57-amd64 and linux-headers-6.1.0-57-common."""
    version = release.rpartition("-")[0]
    return f"linux-headers-{release}", f"linux-headers-{version}-common"


def _unpack(root: Path, *packages: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)  # apt downloads as a user of its own
        run("apt-get", "download", *packages, cwd=Path(folder))
        for archive in sorted(Path(folder).glob("*.deb")):
            run("dpkg", "-x", str(archive), str(root))


def virtme() -> Path:
    """Return the folder that holds virtme-ng, installed on first use."""
    folder = cache() / VIRTME.replace("==", "-")
    if not (folder / "bin/virtme-run").exists():
        say(f"installing {VIRTME} into the cache")
        run(sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), VIRTME)
    return folder


def command_line(stock: Stock, tools: Path, share: Path, memory: str) -> list[str]:
    """Return the command that boots the kernel on this machine's root and runs the guest's script."""
    script = shlex.join(["bash", str(GUEST), str(share)])
    second_root = "local,path=/,mount_tag=tailcause,security_model=none,readonly=on,multidevs=remap"
    return [
        sys.executable, str(tools / "bin/virtme-run"), "--kimg", str(stock.image), "--mods", "auto", "--disable-kvm",
        "--force-9p", "--memory", memory, "--cpus", "2", "--rwdir", str(share), "--verbose", "--show-boot-console",
        "--blk-disk", f"scratch={share / 'scratch.img'}", "--script-sh", script,
        "--qemu-opts", "-cpu", "max", "-virtfs", second_root,
    ]  # fmt: skip


def _all_tests() -> list[str]:
    return sorted(str(p.relative_to(REPO)) for p in REPO.glob("tests/privileged/test_ebpf_*.py"))


def boot(stock: Stock, tools: Path, options: argparse.Namespace) -> int:
    """Boot, show what the tests print while they print it, and return pytest's exit status."""
    with tempfile.TemporaryDirectory(prefix="tailcause-kernels-") as folder:
        share = Path(folder)
        with (share / "scratch.img").open("wb") as disk:
            disk.truncate(4 << 30)  # sparse
        settings = {
            "repo": str(REPO), "python": sys.executable, "modules": str(stock.root), "cache": str(cache().parent),
            "tests": shlex.join(options.tests or _all_tests()),
            "tests_without_btf": "" if options.tests else WITHOUT_BTF,
            "pytest_args": shlex.join(options.pytest_args),
        }  # fmt: skip
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in settings.items()]
        (share / "settings").write_text("".join(lines))
        environment = {**os.environ, "PYTHONPATH": str(tools)}
        command = command_line(stock, tools, share, options.memory)
        say(f"booting Linux {stock.release} under emulation (20 to 95 s, then the tests)")
        with (share / "console").open("wb") as console:
            guest = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=environment
            )
            try:
                return _follow(guest, share, options.timeout)
            finally:
                guest.terminate()
                guest.wait(10)


def _follow(guest: subprocess.Popen[bytes], share: Path, timeout_s: float) -> int:
    began_s, shown = time.monotonic(), 0
    while True:
        ended = guest.poll() is not None
        shown += _show(share / "log", shown)
        if (share / "exit").exists() and (status := (share / "exit").read_text().strip()):
            _show(share / "log", shown)
            say(f"ended after {time.monotonic() - began_s:.0f} s with status {status}")
            return int(status)
        passed_s = time.monotonic() - began_s
        if ended or passed_s > timeout_s or (not shown and passed_s > BOOT_S):
            words = (share / "console").read_text(errors="replace").splitlines()[-15:]
            sys.stderr.write("\n".join(words) + "\n")
            what = "the emulator ended" if ended else "not finished"
            raise CannotStartError(f"{what} after {passed_s:.0f} s; the console's end is above")
        time.sleep(0.5)


def _show(log: Path, after: int) -> int:
    """Print what the log has beyond `after` bytes; return how many."""
    if not log.exists():
        return 0
    with log.open("rb") as file:
        file.seek(after)
        more = file.read()
    sys.stdout.write(more.decode(errors="replace"))
    sys.stdout.flush()
    return len(more)


def main(arguments: Sequence[str]) -> int:
    """Prepare, boot, report."""
    own, pytest_args = list(arguments), []
    if "--" in own:
        own, pytest_args = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(
        prog="tests/kernels/run.py", description="Run the eBPF tests on Debian's stock kernel.",
        epilog="example: tests/kernels/run.py tests/privileged/test_ebpf_sched.py -- -k matrix",
    )  # fmt: skip
    parser.add_argument("tests", nargs="*", help="test files (default: all of eBPF, in two passes)")
    parser.add_argument("--timeout", type=float, default=1500.0, help="seconds for everything")
    parser.add_argument("--kernel", default=META_PACKAGE, help="package that depends on the kernel")
    parser.add_argument("--memory", default="3G", help="of the emulated machine")
    options = parser.parse_args(own)
    options.pytest_args = pytest_args
    try:
        ensure_tools()
        stock, tools = fetch(options.kernel), virtme()
        run(sys.executable, "-m", "ebpf.build", "--quiet", cwd=REPO)
        return boot(stock, tools, options)
    except CannotStartError as exc:
        say(f"cannot run: {exc}")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
