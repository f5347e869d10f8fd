"""The stores that a demo starts for itself, so that no fault is made in anybody's database."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from detector.errors import CannotStartError


@dataclass(frozen=True)
class Store:
    """A store: its programs, the package that has them, and the signal that ends it with nothing left."""

    programs: tuple[str, ...]
    package: str
    ends_by: str


STORES: dict[str, Store] = {
    "postgresql": Store(("initdb", "postgres"), "postgresql", "QUIT"),
    "redis": Store(("redis-server",), "redis-server", "KILL"),
}
"""By the scheme of its address. PostgreSQL's immediate shutdown (SIGQUIT) gives its shared memory back."""

_POSTGRES_FOLDERS = "usr/lib/postgresql/*/bin"
"""Where Debian keeps programs that are on nobody's PATH."""


def program(name: str) -> str | None:
    """Find a program of a store, the newest first."""
    kept = sorted(Path("/").glob(f"{_POSTGRES_FOLDERS}/{name}"), key=_version, reverse=True)
    return str(kept[0]) if kept else shutil.which(name)


def missing(scheme: str) -> str | None:
    """Say why a store cannot be started here, or None if it can."""
    store = STORES.get(scheme)
    if store is None:
        return f"the demo knows no store for {scheme}://"
    absent = [name for name in (*store.programs, "setpriv") if program(name) is None]
    return f"`{absent[0]}` is missing: apt-get install {store.package}" if absent else None


def preparation(scheme: str, folder: Path) -> list[str] | None:
    """Return the command that makes the store's files, where it wants one."""
    if scheme != "postgresql":
        return None
    words = ("-D", str(folder / "data"), "-U", "tailcause", "-A", "trust", "-E", "UTF8")
    return _lowered([_found("initdb"), *words, "--locale=C", "--no-sync"], "KILL")


def server(scheme: str, folder: Path) -> list[str]:
    """Return the command of a store that listens on a socket in `folder` alone and keeps nothing."""
    if scheme == "postgresql":
        settings = (
            "listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "autovacuum=off",
            "max_connections=50", "shared_buffers=16MB", "jit=off",
        )  # fmt: skip
        chosen = [word for setting in settings for word in ("-c", setting)]
        command = [_found("postgres"), "-D", str(folder / "data"), *chosen]
    else:
        words = ("--port", "0", "--unixsocket", str(folder / "redis.sock"), "--dir", str(folder))
        command = [_found("redis-server"), *words, "--save", "", "--appendonly", "no"]
    return _lowered(command, STORES[scheme].ends_by)


def url(scheme: str, folder: Path) -> str:
    """Return the address of the store in `folder`."""
    if scheme == "postgresql":
        return f"postgresql://tailcause@/postgres?host={quote(str(folder), safe='')}"
    return f"unix://{folder}/redis.sock"


def _lowered(command: Sequence[str], ends_by: str) -> list[str]:
    """Give up root, which PostgreSQL refuses, and die with whoever started it (setpriv(1), prctl(2))."""
    drop = (
        ["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs"]
        if os.geteuid() == 0
        else []
    )
    return [_found("setpriv"), *drop, "--pdeathsig", ends_by, *command]


def _found(name: str) -> str:
    path = program(name)
    if path is None:
        raise CannotStartError(f"`{name}` is missing")
    return path


def _version(path: Path) -> int:
    """Order /usr/lib/postgresql/9 before 15."""
    number = path.parent.parent.name.partition(".")[0]
    return int(number) if number.isdigit() else 0
