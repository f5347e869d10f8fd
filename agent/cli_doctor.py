"""`tailcause-agent doctor`."""

import argparse
import asyncio
import socket
from collections.abc import Mapping
from contextlib import closing

import msgspec

from agent import privileges
from agent.capabilities import NEEDED, effective, in_host_pid_namespace, missing
from agent.config import Config
from agent.errors import AgentError
from agent.host.hierarchies import discover
from agent.probecost import CostBook, Trap
from agent.probelist import BY_UPROBE
from agent.probes import Probes, ProbeStatus, Spell
from agent.survey import Surveyed, survey
from agent.telemetry.model import SignalState
from ebpf.session import State

_ROUNDS = 4
_SPELL_S = 0.5
_NAP_S = 0.005
_CAPABILITIES = "/proc/self/status"
_TO_FIX = frozenset(
    (SignalState.NO_PERMISSION, SignalState.GPU_LOST, SignalState.HUNG, SignalState.FAILED)
)


class Finding(msgspec.Struct, frozen=True):
    """One line of the doctor's answer; `cost_ms` is that of one collection."""

    name: str
    what: str
    source: str
    state: str
    reason: str
    remedy: str
    cost_ms: float | None = None
    values: int | None = None
    ns_per_event: int | None = None
    """What one event of a probe costs whoever triggers it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, config: Config) -> int:
    """Print what works; 1 when something is broken that should work."""
    held = effective()  # none is given up here: the caller may have other things to do
    privileges.join_host_cgroups(config.paths)
    findings = [
        *asyncio.run(_examine(config)),
        _layout(config),
        *_privileges(config, held),
        *_ports(config),
    ]
    if args.json:
        print(msgspec.json.encode({"findings": findings}).decode())
    else:
        print("\n".join(_line(finding) for finding in findings))
    return int(any(finding.state in _TO_FIX for finding in findings))


async def _examine(config: Config) -> list[Finding]:
    """Look at every signal, and at every probe while they are attached for it."""
    probes = Probes(config.probes, paths=config.paths)
    try:
        surveyed = await survey(config, _ROUNDS, probes)
        spells = await _spells(probes)
        readings = max(1, _ROUNDS)
        own_s = probes.own_s()
        of_probes = [
            _of_probe(name, status, spells.get(name), own_s.get(name, 0.0) / readings)
            for name, status in probes.status().items()
        ]
    finally:
        probes.off("stopped")
    return [*map(_of_signal, surveyed), *of_probes]


async def _spells(probes: Probes) -> Mapping[str, Spell]:
    """Let the kernel count, while this process sleeps often enough that even a quiet machine switches."""
    counting = asyncio.ensure_future(probes.spell(_SPELL_S))
    while not counting.done():  # noqa: ASYNC110  waking up is the point
        await asyncio.sleep(_NAP_S)
    return await counting


def _of_probe(name: str, status: ProbeStatus, spell: Spell | None, own_s: float) -> Finding:
    state = "ok" if status.state is State.ON else str(status.state)
    cost_ns = CostBook(Trap())
    cost_ns.calibrate({name: spell} if spell is not None else {})
    known = name in cost_ns.ns_per_event or name in BY_UPROBE
    runs = spell.runs / _SPELL_S if spell is not None else 0.0
    cost = f"{cost_ns.event_ns(name):.0f} ns an event" if known else "no event yet"
    reason = status.reason or f"{cost}, {runs:.0f} events/s now"
    return Finding(
        f"probe {name}",
        f"eBPF probe {name}",
        "kernel",
        state,
        reason,
        "",
        round(own_s * 1e3, 3) if status.state is State.ON else None,
        ns_per_event=round(cost_ns.event_ns(name)) if known and state == "ok" else None,
    )


def _of_signal(surveyed: Surveyed) -> Finding:
    status = surveyed.status
    return Finding(
        surveyed.name,
        surveyed.help,
        surveyed.source,
        str(status.state),
        status.reason,
        status.remedy,
        round(surveyed.cost_s * 1e3, 3),
        len(surveyed.samples),
    )


def _layout(config: Config) -> Finding:
    """Say whether spans can be joined to cgroups."""
    name, what = "enrich", "spans joined to the cgroup of their process"
    source = str(config.paths.mountinfo)
    try:
        mode = discover(config.paths).mode
    except (OSError, AgentError) as exc:
        return Finding(name, what, source, "failed", str(exc), "give --path.procfs")
    if mode == "none":
        return Finding(name, what, source, "not_supported", "no cgroup hierarchy is mounted", "")
    return Finding(name, what, source, "ok", f"cgroup layout: {mode}", "")


def _privileges(config: Config, held: int) -> list[Finding]:
    """Say which capabilities are there and what each is for, and whether process ids are the host's."""
    lacking = missing(NEEDED, held)
    wanted = privileges.wanted(config)
    found = []
    for one in NEEDED:
        state, reason, remedy = "ok", "", ""
        if config.unprivileged:
            state, reason, remedy = "given_up", "unprivileged", "leave --unprivileged out"
        elif one not in wanted:
            state, reason = "given_up", "these settings have no use for it"
        elif one in lacking:
            state, reason, remedy = "missing", "not granted", f"run as root, or grant {one.name}"
        found.append(Finding(one.name, one.lost, _CAPABILITIES, state, reason, remedy))
    host = in_host_pid_namespace()
    reason = "" if host else f"lost: {privileges.NO_HOST_PIDS}"
    remedy = "" if host else "in a pod set hostPID: true and mount the host's /proc"
    state = "ok" if host else "missing"
    what = "process ids are those of the host"
    return [*found, Finding("host pids", what, "/proc/self/ns/pid", state, reason, remedy)]


def _ports(config: Config) -> list[Finding]:
    wanted = (
        ("--otlp-port", config.otlp_port),
        ("--otlp-grpc-port", config.grpc_port),
        ("--metrics-port", config.metrics_port),
    )
    return [_port(config.listen, flag, port) for flag, port in wanted if port is not None]


def _port(host: str, flag: str, port: int) -> Finding:
    name, what = f"port {port}", f"port to listen on ({flag})"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as exc:
            remedy = f"stop what listens there (perhaps the agent itself), or give {flag}"
            return Finding(name, what, host, "taken", exc.strerror or str(exc), remedy)
    return Finding(name, what, host, "ok", "", "")


def _line(finding: Finding) -> str:
    cost = "" if finding.cost_ms is None else f"{finding.cost_ms:9.2f} ms"
    count = "" if finding.values is None else f"{finding.values:6d} values"
    head = f"{finding.name:<20} {finding.state:<14} {cost:>12} {count:>13}  {finding.what}"
    notes = [f"{'':<21}{text}" for text in (finding.reason, finding.remedy) if text]
    return "\n".join([head, *notes])
