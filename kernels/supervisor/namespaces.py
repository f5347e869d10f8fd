"""Network namespaces by iproute2: commands inside them, sockets of theirs, and what undoes both."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kernels.errors import WorkloadError

NAMED = Path("/run/netns")
"""Where iproute2 keeps the namespaces that have a name, ip-netns(8)."""

CLONE_NEWNET = 0x40000000
_LINKS = Path("/sys/class/net")
_TIMEOUT_S = 20.0


class NetworkError(WorkloadError):
    """A network could not be made, changed or removed."""


class RemoveNetwork(msgspec.Struct, frozen=True, tag="remove_network"):
    """Remove a link of this namespace, with its peer, and namespaces by their names."""

    link: str
    namespaces: tuple[str, ...]


class RunInNamespace(msgspec.Struct, frozen=True, tag="run_in_namespace"):
    """Run a command that may be repeated in a namespace; one that is gone needs nothing."""

    namespace: str
    command: tuple[str, ...]


def remove_network(action: RemoveNetwork) -> None:
    """Carry out the action."""
    if (_LINKS / action.link).exists():
        call("ip", "link", "delete", action.link)
    for name in action.namespaces:
        if (NAMED / name).exists():
            call("ip", "netns", "delete", name)


def run_in_namespace(action: RunInNamespace) -> None:
    """Carry out the action."""
    if (NAMED / action.namespace).exists():
        call(*within(action.namespace, action.command))


def within(namespace: str, command: Sequence[str]) -> list[str]:
    """Build the command line that runs a command in a namespace."""
    return [tool("ip"), "netns", "exec", namespace, *command]


def tool(name: str) -> str:
    """Find a program of the system's administrator, whose folder is not in everybody's PATH."""
    found = shutil.which(name, path=_path())
    if found is None:
        package = {"nft": "nftables"}.get(name, "iproute2")
        raise NetworkError(f"`{name}` is missing: install {package}")
    return found


def call(name: str, *arguments: str) -> str:
    """Run a program and return what it prints; NetworkError with its last words when it fails."""
    command = [tool(name), *arguments]
    environment = {**os.environ, "PATH": _path()}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as exc:
        raise NetworkError(f"`{' '.join(command)}` takes longer than {_TIMEOUT_S:.0f} s") from exc
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NetworkError(f"`{' '.join(command)}` failed: {said} (needs root)")
    return done.stdout


@contextmanager
def inside(namespace: str | None) -> Iterator[None]:
    """Let this thread make sockets in a namespace: a socket stays in the one that it was made in."""
    if namespace is None:
        yield
        return
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        target = os.open(NAMED / namespace, os.O_RDONLY)
        try:
            _enter(target)
        finally:
            os.close(target)
        try:
            yield
        finally:
            _enter(home)
    finally:
        os.close(home)


def _enter(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
        raise NetworkError(f"cannot enter a network namespace: {os.strerror(ctypes.get_errno())}")


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
