"""Which kernel headers the bcc loader compiles with."""

from pathlib import Path

import pytest

from ebpf.bcc_loader.headers import Headers, find
from ebpf.errors import NotSupportedError

RELEASE = "6.1.0-57-amd64"


def headers(root: Path, *names: str) -> None:
    """Make folders that look like configured headers, or like what configurations share."""
    for name in names:
        shared = "-common" in name or name.startswith("linux-headers-6.8")
        kinds = ["linux/kconfig.h"] if shared else []
        kinds += [] if "-common" in name else ["generated/autoconf.h"]
        for kind in kinds:
            path = root / name / "include" / kind
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def test_own_headers_need_nothing(tmp_path: Path) -> None:
    """Where the running kernel's headers are installed bcc finds them by itself."""
    headers(tmp_path / RELEASE, "build")
    assert find(RELEASE, tmp_path, (tmp_path / "src",)) is None


def test_newest_headers_are_borrowed(tmp_path: Path) -> None:
    """Of several kernels' headers the newest is taken, by number and not by letter, with its other half."""
    headers(tmp_path, "linux-headers-6.1.0-9-amd64", "linux-headers-6.1.0-9-common")
    headers(tmp_path, "linux-headers-6.1.0-57-amd64", "linux-headers-6.1.0-57-common")
    expected = Headers(
        tmp_path / "linux-headers-6.1.0-57-amd64", tmp_path / "linux-headers-6.1.0-57-common"
    )
    assert expected == find("6.18.0", tmp_path / "absent", (tmp_path,))


def test_whole_headers_are_their_own_other_half(tmp_path: Path) -> None:
    """A distribution that does not split its headers has one folder."""
    headers(tmp_path, "linux-headers-6.8.0-31-generic")
    build = tmp_path / "linux-headers-6.8.0-31-generic"
    assert Headers(build, build) == find("6.18.0", tmp_path / "absent", (tmp_path,))


def test_half_of_the_headers_is_said(tmp_path: Path) -> None:
    """Without the shared half the message says which package is missing."""
    headers(tmp_path, "linux-headers-6.1.0-57-amd64")
    with pytest.raises(NotSupportedError, match="-common"):
        find("6.18.0", tmp_path / "absent", (tmp_path,))


def test_no_headers_is_said(tmp_path: Path) -> None:
    """Without any headers the message says what to install."""
    with pytest.raises(NotSupportedError, match="linux-headers-amd64"):
        find("6.18.0", tmp_path / "absent", (tmp_path,))
