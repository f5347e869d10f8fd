"""`tailcause-workload up`: one workload under supervision, in a cgroup of its own."""

import argparse
import asyncio
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kernels.errors import WorkloadError
from kernels.supervisor.actions import RemoveFile
from kernels.supervisor.arguments import (
    add_settings,
    add_state,
    cpu_set,
    finish_help,
    start_logging,
)
from kernels.supervisor.namespaces import inside
from kernels.supervisor.network import build
from kernels.supervisor.places import Places, one, several
from kernels.supervisor.reaper import Reaper
from kernels.supervisor.replica import Release, ServeConfig
from kernels.supervisor.state import NetworkState, control_socket, hook_socket, state_file
from kernels.supervisor.supervisor import Supervisor, UpConfig

log = logging.getLogger(__name__)

_BACKLOG = 1024
_LOCK_WAIT_S = 10.0
_MOST_REPLICAS = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `up`."""
    add_state(parser)
    parser.add_argument("--service", default="chat", metavar="NAME", help="service name")
    parser.add_argument("--port", type=int, default=8000, help="port to serve on; 0 takes any")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve on")
    parser.add_argument("--model", default="tailcause-tiny", metavar="NAME", help="model name")
    parser.add_argument("--revision", default="0" * 40, metavar="SHA", help="revision that runs")
    parser.add_argument("--version", default="1.0.0", help="service version")
    parser.add_argument("--otlp", metavar="URL", help="where the server's spans go")
    parser.add_argument(
        "--cgroup", metavar="PATH", help="cgroup below each hierarchy's mount (/tailcause/NAME)"
    )
    parser.add_argument(
        "--cpus", type=cpu_set, metavar="LIST", help="CPUs that the server may use, such as 0,2-3"
    )
    parser.add_argument(
        "--replicas", type=replica_count, default=1, metavar="N", help="servers behind a balancer"
    )
    parser.add_argument(
        "--network", action="store_true", help="a network of its own to its clients (needs root)"
    )
    parser.add_argument(
        "--restart", action="store_true", help="start a server that dies again (it ends `up`)"
    )
    parser.add_argument(
        "--hook", action="store_true", help="let faults reach into the servers, by a private socket"
    )
    add_settings(parser)
    finish_help(
        parser,
        [
            "up --state /tmp/chat --service chat --port 8000",
            "up --state /tmp/chat --port 0 --otlp http://127.0.0.1:4318 --set max_running=8",
            "up --state /tmp/chat --port 8000 --replicas 3",
            "up --state /tmp/chat --port 8000 --network --restart --hook",
        ],
        "0 told to end, 1 the server died, 2 cannot start",
    )


def run(args: argparse.Namespace) -> int:
    """Supervise until told to end; nothing is left behind."""
    start_logging()
    _pin(args.cpus)
    state = args.state.absolute()
    control_socket(state)
    with _lock(state) as lock_fd, ExitStack() as sockets:
        reaper = Reaper.start(keep_fds=(lock_fd,))
        try:
            for path in (state_file(state), control_socket(state)):
                path.unlink(missing_ok=True)
                reaper.add(RemoveFile(str(path)))
            network = build(reaper) if args.network else None
            places = _places(args, network, sockets, reaper)
            return asyncio.run(_supervise(_config(args, network), places, reaper))
        finally:
            reaper.undo()


def _config(args: argparse.Namespace, network: NetworkState | None) -> UpConfig:
    state = args.state.absolute()
    hooks = state if args.hook else None
    return UpConfig(
        state=state,
        serve=ServeConfig(args.service, args.model, args.otlp, hooks),
        release=Release(args.revision, args.version, dict(args.settings)),
        network=network,
        restarts=args.restart,
    )


def _places(
    args: argparse.Namespace, network: NetworkState | None, sockets: ExitStack, reaper: Reaper
) -> Places:
    """Open the sockets and make the cgroups; replicas hear their balancer on the machine's loopback."""
    with inside(network.inside if network else None):
        host = network.server if network else args.host
        public = sockets.enter_context(_listen(host, args.port))
    cgroup = args.cgroup or f"/tailcause/{args.service}"
    names = [f"{args.service}-{number}" for number in range(args.replicas)]
    for path in (hook_socket(args.state, name) for name in names if args.hook):
        reaper.add(RemoveFile(str(path)))
    if args.replicas == 1:
        return one(args.service, public, cgroup, reaper)
    inner = [sockets.enter_context(_listen("127.0.0.1", 0)) for _ in names]
    return several(args.service, (public, inner), cgroup, reaper)


def _pin(cpus: frozenset[int] | None) -> None:
    """Pin this process, and with it every server that it starts."""
    if cpus is None:
        return
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as exc:
        here = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        raise WorkloadError(f"--cpus: none of them is usable; this machine offers {here}") from exc


async def _supervise(config: UpConfig, places: Places, reaper: Reaper) -> int:
    return await Supervisor(config, places, reaper).run()


@contextmanager
def _lock(state: Path) -> Iterator[int]:
    """One supervisor per state folder; the reaper of a killed one holds the lock to its end."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(state / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise WorkloadError(f"cannot use --state {state}: {exc.strerror}") from exc
    try:
        _take(descriptor, state)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int, state: Path) -> None:
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if state_file(state).exists() and control_socket(state).exists():
                raise WorkloadError(f"a workload runs with --state {state} already") from None
            if time.monotonic() > deadline:
                raise WorkloadError(f"--state {state} is locked by another `up`") from None
            time.sleep(0.05)
        else:
            return


def _listen(host: str, port: int) -> socket.socket:
    """Open the socket that every release accepts from; it outlives each of them."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as exc:
        listener.close()
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise WorkloadError(f"cannot serve on {host}:{port}: {reason}; choose --port") from exc
    listener.setblocking(False)
    return listener


def replica_count(text: str) -> int:
    """Read how many replicas, 1 to 32."""
    if not text.isdigit() or not 1 <= int(text) <= _MOST_REPLICAS:
        raise argparse.ArgumentTypeError(f"{text!r}: want 1 to {_MOST_REPLICAS} replicas")
    return int(text)
