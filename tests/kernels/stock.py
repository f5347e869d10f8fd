"""A stock kernel of the distribution, with what boots it: fetched into a cache, nothing of it installed.

The cache is $TAILCAUSE_CACHE, else ~/.cache/tailcause. What can be fetched again is; what is missing raises
CannotStartError, which says what to do.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

VIRTME = "virtme-ng==1.42"
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "depmod": "kmod",
    "mkfs.ext4": "e2fsprogs",
}
META_PACKAGE = "linux-image-amd64"
_FETCH_S = 300.0


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
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, check=False, timeout=_FETCH_S
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise CannotStartError(f"{shlex.join(command)}: {exc}") from exc
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
    try:
        return _fetch(meta_package)
    except CannotStartError:
        if os.geteuid() or os.environ.get("TAILCAUSE_NO_APT"):
            raise
        say(
            "bringing the package lists up to date"
        )  # they name what is no longer there, or nothing
        run("apt-get", "update")
        return _fetch(meta_package)


def _fetch(meta_package: str) -> Stock:
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
