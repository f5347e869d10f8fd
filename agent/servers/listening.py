"""Servers that listen on a loopback address of this host: by port, and by the command of their process.

Source: proc_pid_net(5), `net/tcp` and `net/tcp6`; proc_pid_fd(5).
"""

import ipaddress
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.host.files import read_text
from agent.host.paths import HostPaths
from agent.servers.registry import SERVERS
from agent.servers.settings import Target
from agent.servers.table import Server

MAX_PROCESSES = 8192
_LISTEN = "0A"
_STATE, _LOCAL, _INODE = 3, 1, 9
_BY_PORT: Mapping[int, tuple[Server, ...]] = {
    port: tuple(server for server in SERVERS if port in server.ports)
    for server in SERVERS
    for port in server.ports
}
PORTS = tuple(sorted(_BY_PORT))


@dataclass(frozen=True)
class _Socket:
    """A listening socket: where it is reached on loopback, and its inode."""

    host: str
    port: int
    inode: str


class Listening:
    """Looks for servers; what a socket is has to be found out once, as long as it is there."""

    def __init__(self, paths: HostPaths) -> None:
        self._paths = paths
        self._known: dict[_Socket, Target | None] = {}

    @property
    def reachable(self) -> bool:
        """Tell whether the host's loopback is this process's own, or another network namespace's."""
        procfs = self._paths.procfs
        try:
            host = os.readlink(procfs / self._paths.owner / "ns" / "net")  # noqa: PTH115  no path
            return host == os.readlink("/proc/self/ns/net")  # noqa: PTH115
        except OSError:
            return False

    def targets(self) -> list[Target]:
        """Return the pages of the servers that listen now; the host is never left."""
        if not self.reachable:
            return []
        sockets = list(dict.fromkeys(self._sockets()))
        new = [one for one in sockets if one not in self._known]
        commands = self._commands({one.inode for one in new}) if new else {}
        kept = {one: self._known[one] for one in sockets if one in self._known}
        self._known = kept | {one: _target(one, commands.get(one.inode, "")) for one in new}
        return [target for target in self._known.values() if target is not None]

    def _sockets(self) -> Iterator[_Socket]:
        net = self._paths.procfs / self._paths.owner / "net"
        for name in ("tcp", "tcp6"):
            try:
                lines = read_text(net / name).splitlines()[1:]
            except OSError:  # a kernel without IPv6
                continue
            yield from _listening(lines)

    def _commands(self, inodes: set[str]) -> dict[str, str]:
        """Return the command lines of the processes that have these sockets, where a known server's word is in them."""
        wanted = {f"socket:[{inode}]": inode for inode in inodes}
        found: dict[str, str] = {}
        pids = sorted(int(one.name) for one in self._paths.procfs.iterdir() if one.name.isdigit())
        for pid in pids[-MAX_PROCESSES:]:
            folder = self._paths.procfs / str(pid)
            try:
                command = read_text(folder / "cmdline").replace("\0", " ").lower()
                if _has_word(command):
                    for link in _links(str(folder / "fd")):
                        if link in wanted:
                            found[wanted[link]] = command
            except OSError:  # it has just ended, or is somebody else's
                continue
        return found


def _listening(lines: Iterable[str]) -> Iterator[_Socket]:
    for line in lines:
        fields = line.split()
        if len(fields) <= _INODE or fields[_STATE] != _LISTEN:
            continue
        address, _, port = fields[_LOCAL].partition(":")
        host = _loopback(address)
        if host and int(port, 16) in _BY_PORT:
            yield _Socket(host, int(port, 16), fields[_INODE])


def _loopback(text: str) -> str:
    """Return the loopback address at which a socket is reached, empty where it is bound to another.

    The kernel writes addresses as words of 32 bits in its own byte order (little-endian on all that we run on).
    """
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = mapped or address
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address) if address.is_loopback else ""


def _has_word(command: str) -> bool:
    return any(word in command for server in SERVERS for word in server.commands)


def _links(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                yield os.readlink(entry.path)  # noqa: PTH115  a Path per file costs more
            except OSError:  # just closed
                continue


def _target(socket: _Socket, command: str) -> Target | None:
    for server in _BY_PORT[socket.port]:
        if any(word in command for word in server.commands):
            host = f"[{socket.host}]" if ":" in socket.host else socket.host
            return Target(f"http://{host}:{socket.port}{server.path}")
    return None
