"""Correctness before speed: what the pages say is what the kernel and the scenario say."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.host.cgroup_walk import directory
from kernels.fakenvml.reading import read_scenario
from tests.bench.agent_node import Node
from tests.bench.agent_process import FailedError

PROBES = ("sched", "waits", "blkio", "tcp", "mem", "span")
"""Those that need no CUDA in somebody else's process."""
_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: # .*)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ROUNDING = 1e-9

Labels = Mapping[str, str]


class Page:
    """The series of a metrics page."""

    def __init__(self, text: str) -> None:
        self._series: dict[str, list[tuple[Labels, float]]] = {}
        for line in text.splitlines():
            if line.startswith("#") or not line:
                continue
            found = _LINE.fullmatch(line)
            if found is None:
                raise FailedError(f"not a line of the exposition format: {line!r}")
            labels = dict(_LABEL.findall(found[2] or ""))
            self._series.setdefault(found[1], []).append((labels, float(found[3])))

    def values(self, name: str, /, **labels: str) -> list[float]:
        """Return the values of a name's series that have these labels."""
        return [value for has, value in self._series.get(name, ()) if labels.items() <= has.items()]

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return a name's values by one label."""
        return {has[label]: value for has, value in self._series.get(name, ()) if label in has}

    def one(self, name: str, /, **labels: str) -> float:
        """Return the value of the only such series."""
        found = self.values(name, **labels)
        if len(found) != 1:
            raise FailedError(f"{name}{labels} has {len(found)} series, not one")
        return found[0]


@dataclass(frozen=True)
class Kernel:
    """What the kernel says of counters that only grow."""

    cpu_s: Mapping[str, float]
    """By cgroup."""
    received_bytes: float

    @classmethod
    def read(cls, node: Node) -> "Kernel":
        """Read it straight from the kernel's files."""
        return cls(
            {cgroup: _cgroup_cpu_s(node, cgroup) for cgroup in node.cgroups}, _loopback_bytes()
        )


def _cgroup_cpu_s(node: Node, cgroup: str) -> float:
    if (tree := node.hierarchies.v1("cpuacct")) is not None:
        return int(Path(directory(tree, cgroup), "cpuacct.usage").read_text()) / 1e9
    assert node.hierarchies.v2 is not None
    text = Path(directory(node.hierarchies.v2, cgroup), "cpu.stat").read_text()
    return int(dict(line.split() for line in text.splitlines())["usage_usec"]) / 1e6


def _loopback_bytes() -> float:
    line = next(
        line for line in Path("/proc/net/dev").read_text().splitlines() if " lo:" in f" {line}"
    )
    return float(line.partition(":")[2].split()[0])


def _memory_total_bytes() -> float:
    return int(Path("/proc/meminfo").read_text().split()[1]) * 1024.0


def check_agent(text: str, node: Node, before: Kernel, after: Kernel) -> None:
    """Compare the agent's page with what the kernel said before its last collection and after the scrape."""
    page = Page(text)
    _equal(
        "system_memory_limit_bytes", page.one("system_memory_limit_bytes"), _memory_total_bytes()
    )
    _within(
        "system_network_io_bytes_total",
        page.one(
            "system_network_io_bytes_total", network_interface_name="lo", network_io_direction="receive"
        ),
        (before.received_bytes, after.received_bytes),
    )  # fmt: skip
    cpu_s = page.by("container_cpu_time_seconds_total", "tailcause_cgroup_path")
    _all_there("container_cpu_time_seconds_total", node.cgroups, cpu_s)
    for cgroup in node.cgroups:
        bounds = before.cpu_s[cgroup], after.cpu_s[cgroup]
        _within(f"container_cpu_time_seconds_total of {cgroup}", cpu_s[cgroup], bounds)
    memory = page.by("container_memory_usage_bytes", "tailcause_cgroup_path")
    _all_there("container_memory_usage_bytes", node.cgroups, memory)
    _check_gpus(page, node)
    _check_probes(page, node)


def _check_gpus(page: Page, node: Node) -> None:
    for gpu in read_scenario(node.scenario).gpus:
        used = page.values("hw_gpu_memory_usage_bytes", hw_id=str(gpu.values["uuid"]))
        _equal(
            f"hw_gpu_memory_usage_bytes of {gpu.values['uuid']}", used, [gpu.values["memory.used"]]
        )
    users = page.by("process_memory_usage_bytes", "process_pid")
    _all_there("process_memory_usage_bytes", map(str, node.pids[: node.size.gpus]), users)


def _check_probes(page: Page, node: Node) -> None:
    for probe in PROBES:
        on = page.values(
            "tailcause_probe_state_ratio", tailcause_probe_name=probe, tailcause_probe_state="on"
        )
        _equal(f"probe {probe} on", on, [1.0])
    waits = page.by("tailcause_runqueue_delay_seconds_count", "tailcause_cgroup_path")
    _all_there("tailcause_runqueue_delay_seconds_count", node.awake, waits)


def check_peer(text: str) -> None:
    """Compare the node exporter's page with the kernel."""
    total = Page(text).one("node_memory_MemTotal_bytes")
    _equal("node_memory_MemTotal_bytes", total, _memory_total_bytes())


def _all_there(name: str, wanted: Iterable[str], found: Iterable[str]) -> None:
    if missing := sorted(set(wanted) - set(found)):
        raise FailedError(f"{name} lacks {len(missing)} series, such as {missing[0]}")


def _equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise FailedError(f"{what} is {found}, not {expected}")


def _within(what: str, found: float, bounds: tuple[float, float]) -> None:
    if not bounds[0] - _ROUNDING <= found <= bounds[1] + _ROUNDING:
        raise FailedError(f"{what} is {found}, not between {bounds[0]} and {bounds[1]}")
