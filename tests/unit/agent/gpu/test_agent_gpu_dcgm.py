"""A dcgm-exporter is read instead of NVML; without one, our values bear its names."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.collectors.base import CollectorContext
from agent.collectors.gpu import GpuCollector
from agent.errors import AgentError
from agent.exporters.exposition import render
from agent.gpu import dcgm
from agent.gpu.settings import GpuSettings
from agent.gpu.xid import Xid
from agent.telemetry.names import BY_NAME
from kernels.fakenvml import h100, scenarios
from tests.unit.agent.gpu.conftest import Stage, collect

UUID = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"
MIB = 1 << 20
_WHO = f'gpu="0",UUID="{UUID}",pci_bus_id="00000000:17:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node-1"'
_MIG = f'{_WHO},GPU_I_PROFILE="1g.10gb",GPU_I_ID="9"'
PAGE = f"""# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{{{_WHO}}} 1980
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{{{_WHO}}} 512
DCGM_FI_DEV_FB_USED{{{_MIG}}} 128
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{_WHO},container="main",namespace="a b",pod="say \\"x\\""}} 9000000
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{{{_WHO}}} 87
# TYPE DCGM_FI_DEV_POWER_VIOLATION counter
DCGM_FI_DEV_POWER_VIOLATION{{{_WHO}}} 2500000000
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{{{_WHO}}} 0.55
DCGM_FI_DEV_MEMORY_TEMP{{{_WHO}}} NaN
DCGM_FI_DEV_UNHEARD_OF{{{_WHO}}} 1
DCGM_FI_DEV_DEC_UTIL{{gpu="0"}} 1
garbage {{
"""


class Exporter(ThreadingHTTPServer):
    """A real HTTP server that says what a dcgm-exporter says."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.page = PAGE
        self.status = 200
        self.asked = 0

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}/metrics"


class _Answer(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        """Answer with the page."""
        self.server.asked += 1
        body = self.server.page.encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server's name
        """Say nothing."""


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    """Return a running exporter."""
    server = Exporter()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_page_in_our_names_and_units(stage: Stage, exporter: Exporter) -> None:
    """MHz, MiB, mJ, percent and ns come back as Hz, bytes, J, ratios and s; what is no value is left out."""
    found = collect(stage.collector(dcgm=exporter.url))
    own = {key: round(value, 6) for key, value in found.of(UUID).items()}
    own.pop(next(key for key in own if key[0] == "tailcause.gpu.info"))
    assert own == {
        ("tailcause.gpu.clock.frequency", "sm"): 1.98e9,
        ("hw.gpu.memory.usage",): 512 * MIB,
        ("hw.energy", "main", "a b", 'say "x"'): 9000,
        ("hw.gpu.utilization", "general"): 0.87,
        ("tailcause.gpu.throttled_time", "power"): 2.5,
        ("tailcause.gpu.activity", "sm"): 0.55,
    }


def test_page_keeps_instances_and_identity_apart(stage: Stage, exporter: Exporter) -> None:
    """An instance has its GPU as parent; model and address go to the info alone."""
    samples = collect(stage.collector(dcgm=exporter.url)).samples
    infos = {
        s.attributes["hw.id"]: s.attributes for s in samples if s.metric == "tailcause.gpu.info"
    }
    assert infos[UUID]["tailcause.gpu.pci.address"] == "00000000:17:00.0"
    assert infos[f"{UUID}/9"]["hw.parent"] == UUID
    assert infos[f"{UUID}/9"]["tailcause.gpu.mig.profile"] == "1g.10gb"
    for sample in samples:
        assert set(sample.attributes) <= set(BY_NAME[sample.metric].attributes)


def test_nvml_is_not_doubled(stage: Stage, exporter: Exporter) -> None:
    """Where an exporter runs, the driver is not even opened, and its names are left to it."""
    stage.play(scenarios.healthy(1))
    samples = collect(stage.collector(dcgm=exporter.url)).samples
    assert stage.held() is None
    assert b"DCGM_" not in render(samples, {"host.name": "node-1"})


@pytest.mark.parametrize(("status", "page"), [(500, PAGE), (200, "x" * (8 * MIB + 1))])
def test_configured_exporter_that_fails_is_a_failure(
    stage: Stage, exporter: Exporter, status: int, page: str
) -> None:
    """An exporter that was configured and does not give its page is told; NVML does not step in silently."""
    exporter.status, exporter.page = status, page
    with pytest.raises(AgentError, match=r"^dcgm-exporter at http"):
        stage.collector(dcgm=exporter.url).collect()


def test_configured_exporter_without_gpus_is_told(stage: Stage, exporter: Exporter) -> None:
    """A page without a GPU is no data, and no false 0."""
    exporter.page = "up 1\n"
    found = collect(stage.collector(dcgm=exporter.url))
    assert found.state == "not_supported"
    assert "no GPU" in found.reason


def test_exporter_is_found_on_loopback(
    stage: Stage, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without configuration the usual port is looked at; when the exporter goes, NVML is read."""
    monkeypatch.setattr(dcgm, "LOOPBACK", exporter.url)
    stage.play(scenarios.healthy(1))
    gpus = stage.collector(dcgm="")
    assert collect(gpus).of(UUID)
    exporter.page = "node_load1 1\n"  # somebody else listens there now
    assert set(collect(gpus).states()) == {h100.gpu_uuid(0)}
    asked = exporter.asked
    collect(gpus)
    assert exporter.asked == asked  # it is not asked at every collection


def test_nobody_listens(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing listens, NVML is read at once."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(dcgm, "LOOPBACK", f"http://127.0.0.1:{free.getsockname()[1]}/metrics")
        stage.play(scenarios.healthy(1))
        assert collect(stage.collector(dcgm="")).states() == {h100.gpu_uuid(0): "ok"}


def test_xids_beside_an_exporter(stage: Stage, exporter: Exporter) -> None:
    """The exporter tells only the last Xid; the kernel's log counts them, on the GPU of that address."""
    gpus = GpuCollector(CollectorContext(gpu=GpuSettings("", exporter.url)))
    stage.collectors.append(gpus)
    collect(gpus)
    gpus._book.add(Xid("0000:17:00", 48, "kernel", 1.0))
    assert collect(gpus).xids() == {(UUID, "xid_48"): 1}


def exposed(stage: Stage) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return what a scrape shows under DCGM's names, by name and labels."""
    samples = collect(stage.collector()).samples
    text = render(samples, {"host.name": "node-1"}).decode()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("DCGM_"):
                found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = (
                    sample.value
                )
    return found


def test_our_values_under_its_names(stage: Stage) -> None:
    """Names, units and labels are those of the exporter, so that its dashboards work."""
    stage.play(
        scenarios.healthy(1).having(0, {"violation.power": 2_500_000_000, "energy": 9_000_000})
    )
    found = exposed(stage)
    labels = (
        ("Hostname", "node-1"),
        ("UUID", h100.gpu_uuid(0)),
        ("device", "nvidia0"),
        ("gpu", "0"),
        ("modelName", "NVIDIA H100 80GB HBM3"),
        ("pci_bus_id", "00000000:19:00.0"),
    )
    expected = {
        "DCGM_FI_DEV_SM_CLOCK": 1980,
        "DCGM_FI_DEV_MEM_CLOCK": 2619,
        "DCGM_FI_DEV_GPU_TEMP": 61,
        "DCGM_FI_DEV_MEMORY_TEMP": 72,
        "DCGM_FI_DEV_POWER_USAGE": 412.5,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 9_000_000,
        "DCGM_FI_DEV_GPU_UTIL": 62,
        "DCGM_FI_DEV_FB_USED": 61_440,
        "DCGM_FI_DEV_FB_RESERVED": 551,
        "DCGM_FI_DEV_POWER_VIOLATION": 2_500_000_000,
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 0,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 0,
    }
    assert {name: found[name] for name in expected} == {
        name: {labels: pytest.approx(value)} for name, value in expected.items()
    }


def test_instances_under_its_names(stage: Stage) -> None:
    """An instance bears its GPU's UUID, its own number and its profile."""
    stage.play(scenarios.mig(("1g.10gb",), gpus=1))
    used = exposed(stage)["DCGM_FI_DEV_FB_USED"]
    labels = [dict(key) for key in used]
    assert [(one["UUID"], one.get("GPU_I_ID"), one.get("GPU_I_PROFILE")) for one in labels] == [
        (h100.gpu_uuid(0), None, None),
        (h100.gpu_uuid(0), "1", "1g.10gb"),
    ]


_NAMES = (
    "SM_CLOCK MEM_CLOCK GPU_TEMP MEMORY_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION",
    "GPU_UTIL MEM_COPY_UTIL ENC_UTIL DEC_UTIL FB_USED FB_FREE FB_RESERVED",
    "PCIE_REPLAY_COUNTER XID_ERRORS POWER_VIOLATION THERMAL_VIOLATION",
    "SYNC_BOOST_VIOLATION BOARD_LIMIT_VIOLATION LOW_UTIL_VIOLATION",
    "RELIABILITY_VIOLATION ECC_SBE_VOL_TOTAL ECC_DBE_VOL_TOTAL ECC_SBE_AGG_TOTAL",
    "ECC_DBE_AGG_TOTAL RETIRED_SBE RETIRED_DBE RETIRED_PENDING",
    "CORRECTABLE_REMAPPED_ROWS UNCORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE",
    "NVLINK_BANDWIDTH_TOTAL NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
)


def test_every_name_of_the_list_is_there() -> None:
    """What users have dashboards for is in the catalogue."""
    names = {alias.name for m in BY_NAME.values() for alias in m.aliases}
    assert {f"DCGM_FI_DEV_{name}" for row in _NAMES for name in row.split()} <= names
