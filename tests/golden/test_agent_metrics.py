"""What leaves the agent, byte for byte: the Prometheus exposition and the OTLP request.

UPDATE_GOLDENS=1 writes the files anew.
"""

import json
import os
from pathlib import Path

import pytest
from google.protobuf import json_format
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from agent.collectors.base import CollectorContext
from agent.collectors.cgroup import CgroupCollector
from agent.collectors.cpu import CpuCollector
from agent.collectors.disk import DiskCollector
from agent.collectors.memory import MemoryCollector
from agent.collectors.network import NetworkCollector
from agent.collectors.process import ProcessCollector
from agent.collectors.psi import PsiCollector
from agent.exporters.exposition import prometheus_name, render
from agent.host.paths import HostPaths
from agent.otlp.codec import PROTOBUF, Signal, encode_samples, parse
from agent.telemetry.model import Sample
from agent.telemetry.names import METRICS

HERE = Path(__file__).parent / "agent"
HOST = Path(__file__).parents[1] / "fixtures" / "host" / "hybrid"
NOW = 1_796_109_000_000_000_000
BUILDERS = (
    CpuCollector,
    MemoryCollector,
    DiskCollector,
    NetworkCollector,
    PsiCollector,
    CgroupCollector,
    ProcessCollector,
)
RESOURCE = {"service.name": "tailcause-agent", "host.name": 'node-"1"'}


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """Return all samples of the hybrid fixture host at a standing clock."""
    context = CollectorContext(
        HostPaths(HOST / "proc", HOST / "cgroup"),
        now_unix_ns=lambda: NOW,
        serving_pids=lambda: (4242,),
    )
    return [sample for build in BUILDERS for sample in build(context).collect()]


def check(name: str, actual: str) -> None:
    """Compare with a golden file, or write it."""
    file = HERE / name
    if os.environ.get("UPDATE_GOLDENS") == "1":
        file.write_text(actual)
    assert actual == file.read_text()


def test_exposition(samples: list[Sample]) -> None:
    """The Prometheus text of a host stays as it is."""
    check("exposition.txt", render(samples, RESOURCE).decode())


def test_openmetrics(samples: list[Sample]) -> None:
    """The OpenMetrics text of a host stays as it is."""
    check("openmetrics.txt", render(samples, RESOURCE, openmetrics=True).decode())


@pytest.mark.parametrize("openmetrics", [False, True])
def test_both_formats_parse_to_the_same_values(samples: list[Sample], *, openmetrics: bool) -> None:
    """The parsers of Prometheus's client library read every sample back under the name of the catalogue."""
    parse_text = openmetrics_families if openmetrics else text_string_to_metric_families
    text = render(samples, RESOURCE, openmetrics=openmetrics).decode()
    read: dict[str, list[float]] = {}
    for family in parse_text(text):
        for found in family.samples:
            read.setdefault(found.name, []).append(found.value)
    names = {metric.name: prometheus_name(metric) for metric in METRICS}
    sent: dict[str, list[float]] = {}
    for sample in samples:
        sent.setdefault(names[sample.metric], []).append(sample.value)
    assert {name: read[name] for name in sent} == sent


def test_otlp_request(samples: list[Sample]) -> None:
    """The OTLP request of a host stays as it is."""
    message = parse(Signal.METRICS, encode_samples(samples, RESOURCE), PROTOBUF)
    tree = json_format.MessageToDict(message)
    check("metrics.json", json.dumps(tree, indent=1) + "\n")


def test_aliases_carry_cadvisor_labels(samples: list[Sample]) -> None:
    """The throttled seconds are there under cAdvisor's name with its `id` label."""
    lines = render(samples, RESOURCE).decode().splitlines()
    [line] = [
        line
        for line in lines
        if line.startswith('container_cpu_cfs_throttled_seconds_total{id="/docker/')
    ]
    assert line.endswith(" 32.43")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('node_disk_read_bytes_total{device="vda"}', 4588402 * 512),
        ('node_disk_writes_completed_total{device="nvme0n1"}', 2560),
        ('node_disk_io_time_seconds_total{device="vda"}', 7.952),
        ('node_network_receive_drop_total{device="eth0"}', 5),
        ("node_memory_MemFree_bytes", 22292968 * 1024),
        ("node_pressure_io_stalled_seconds_total", 3.856416),
        ("node_pressure_cpu_waiting_seconds_total", 9.350262),
        ('container_pressure_cpu_stalled_seconds_total{id="/docker/ID"}', 31.99),
        ('container_pressure_memory_waiting_seconds_total{id="/docker/ID"}', 0.0015),
        ('container_fs_reads_bytes_total{device="vda",id="/docker/ID"}', 78643200),
        ('container_fs_writes_total{device="vda",id="/docker/ID"}', 16),
        ('container_memory_rss{id="/docker/ID"}', 121634816),
        ('container_threads{id="/docker/ID"}', 6),
        ('container_cpu_user_seconds_total{id="/docker/ID"}', 100),
    ],
)
def test_dashboards_find_their_series(samples: list[Sample], line: str, value: float) -> None:
    """The names and labels of node_exporter and cAdvisor carry the values of their directions and states."""
    container = "4f1c0d9a8b7e6f5d4c3b2a1908f7e6d5c4b3a29180f7e6d5c4b3a2918070f6e5"
    lines = render(samples, RESOURCE).decode().splitlines()
    found = dict(one.rsplit(" ", 1) for one in lines if not one.startswith("#"))
    assert float(found[line.replace("ID", container)]) == value


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("system.cpu.time", "system_cpu_time_seconds_total"),
        ("system.cpu.logical.count", "system_cpu_logical_count"),
        ("system.memory.usage", "system_memory_usage_bytes"),
        ("hw.gpu.utilization", "hw_gpu_utilization_ratio"),
        ("hw.temperature", "hw_temperature_celsius"),
        ("hw.energy", "hw_energy_joules_total"),
        ("tailcause.cgroup.cpu.cfs.periods", "tailcause_cgroup_cpu_cfs_periods_total"),
    ],
)
def test_names_follow_the_compatibility_rules(name: str, expected: str) -> None:
    """Unit and kind become suffixes."""
    [metric] = [metric for metric in METRICS if metric.name == name]
    assert prometheus_name(metric) == expected


def test_no_name_stands_for_two_metrics() -> None:
    """No two metrics share a name; an alias may equal its own metric's name only."""
    owners: dict[str, set[str]] = {}
    for metric in METRICS:
        names = {prometheus_name(metric), metric.alias, *(alias.name for alias in metric.aliases)}
        for name in names - {""}:
            owners.setdefault(name, set()).add(metric.name)
    assert {name: owner for name, owner in owners.items() if len(owner) > 1} == {}


def test_every_family_is_declared_once(samples: list[Sample]) -> None:
    """A scrape with one name declared twice would be refused."""
    lines = render(samples, RESOURCE).decode().splitlines()
    declared = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(declared) == len(set(declared))


def test_alias_of_the_same_name_shares_the_series(samples: list[Sample]) -> None:
    """Where cAdvisor's name is ours too, one series carries both labels."""
    lines = render(samples, RESOURCE).decode().splitlines()
    line = 'container_memory_usage_bytes{id="/",tailcause_cgroup_path="/"} 2205315072'
    assert line in lines
