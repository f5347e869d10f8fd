"""A network namespace of our own in which packets get lost, with what its kernel counts; for tests of the tcp probe."""

import os
import shutil
import subprocess
import time
from types import TracebackType
from typing import Self

IPV4, IPV6 = "10.99.0.2", "fd99::2"
"""Addresses of the namespace's loopback."""
MTU = 1500


def why_no_namespace() -> str:
    """Name the tool that is missing here, or nothing."""
    missing = [tool for tool in ("ip", "nft") if not shutil.which(tool, path=_path())]
    return f"needs {' and '.join(missing)} (iproute2, nftables)" if missing else ""


def enter(name: str) -> str:
    """Return the Python that moves a process into a namespace."""
    return f"""
import ctypes, os
at = os.open({f"/run/netns/{name}"!r}, os.O_RDONLY)
if ctypes.CDLL(None).setns(at, 0): raise SystemExit("cannot enter the namespace")
"""


class LossyNamespace:
    """A namespace whose loopback loses some of the packets that arrive, when asked to."""

    def __init__(self) -> None:
        self.name = f"tctest-{os.getpid()}-{time.monotonic_ns() % 10**9}"
        _run("ip", "netns", "add", self.name)
        self._here("ip", "link", "set", "lo", "mtu", str(MTU), "up")
        self._here("ip", "address", "add", f"{IPV4}/32", "dev", "lo")
        self._here("ip", "address", "add", f"{IPV6}/128", "dev", "lo", "nodad")

    def lose(self, percent: int) -> None:
        """Drop so many of a hundred TCP packets on arrival, whichever way they go."""
        self._drop(f"meta l4proto tcp numgen random mod 100 < {percent}")

    def lose_answers(self) -> None:
        """Drop the second packet of every handshake."""
        self._drop("tcp flags & (syn | ack) == syn | ack")

    def lose_nothing(self) -> None:
        """Deliver everything again."""
        self._here("nft", "delete table inet loss")

    def retransmitted(self) -> int:
        """Return the segments that the namespace's kernel has sent again, of IPv4 and IPv6."""
        names, values = (
            line.split()
            for line in self._here("cat", "/proc/net/snmp").splitlines()
            if line.startswith("Tcp:")
        )
        return int(values[names.index("RetransSegs")])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _run("ip", "netns", "delete", self.name)

    def _drop(self, packets: str) -> None:
        chain = "add chain inet loss in { type filter hook prerouting priority 0; }"
        self._here("nft", f"add table inet loss; {chain}; add rule inet loss in {packets} drop")

    def _here(self, *command: str) -> str:
        return _run("ip", "netns", "exec", self.name, *command)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _run(*command: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": _path()},
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
