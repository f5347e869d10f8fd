"""Finds kernel headers that bcc can compile with: the running kernel's, or another's of this architecture.

The program reads no kernel type, so any headers that compile will do. Debian splits its headers in two folders and
links them from the folder of the kernel's modules; bcc looks there only, so that the helper joins them in a view of
its own file system (`BCC_KERNEL_SOURCE` wants one folder).
"""

import platform
import re
from dataclasses import dataclass
from pathlib import Path

from ebpf.errors import NotSupportedError


@dataclass(frozen=True)
class Headers:
    """Two folders to be joined; None where bcc finds the running kernel's own headers by itself."""

    build: Path
    """What was generated for one configuration."""
    source: Path
    """What all configurations share; the same folder where a distribution does not split them."""


def find(
    release: str | None = None,
    modules: Path = Path("/lib/modules"),
    sources: tuple[Path, ...] = (Path("/usr/src"),),
) -> Headers | None:
    """Return the headers to borrow, None for the kernel's own; raises NotSupportedError when there are none."""
    own = modules / (release or platform.release())
    if (own / "build/include/generated/autoconf.h").exists():
        return None
    if Path("/sys/kernel/kheaders.tar.xz").exists():
        return None
    for folder in sources:
        for build in sorted(folder.glob("linux-headers-*"), key=_version, reverse=True):
            if (build / "include/generated/autoconf.h").exists():
                return Headers(build, _common(build))
    raise NotSupportedError(
        "bcc needs kernel headers, of any kernel of this architecture "
        "(Debian: apt-get install linux-headers-amd64; Ubuntu: linux-headers-generic)"
    )


def _common(build: Path) -> Path:
    """Return the shared folder: linux-headers-6.1.0-57-common beside linux-headers-6.1.0-57-amd64 (Debian)."""
    if (build / "include/linux/kconfig.h").exists():
        return build
    stem = re.sub(r"-(?:rt-|cloud-)?[a-z0-9]+$", "", build.name)
    for candidate in (f"{stem}-common", f"{stem}-common-rt", stem):
        path = build.parent / candidate
        if (path / "include/linux/kconfig.h").exists():
            return path
    raise NotSupportedError(
        f"{build} is half of the headers: install the -common package of the same version"
    )


def _version(path: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", path.name)))
