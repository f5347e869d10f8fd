"""Every field of a GPU, in base units; what it lacks is not there."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent.telemetry.names import BY_NAME
from kernels.fakenvml import build, h100, scenarios
from kernels.fakenvml.scenario import Failure, Process, Ramp, Value
from kernels.fakenvml.status import read_trace
from tests.unit.agent.gpu.conftest import Key, Round, Stage, collect, until

GPU = h100.gpu_uuid(0)
MIB = 1 << 20
DISTINCT: dict[str, Value] = {
    "utilization.gpu": 87,
    "utilization.memory": 41,
    "utilization.encoder": 3,
    "utilization.decoder": 5,
    "memory.total": 80_000 * MIB,
    "memory.used": 10_000 * MIB,
    "memory.reserved": 500 * MIB,
    "bar1.total": 256 * MIB,
    "bar1.used": 7 * MIB,
    "power.usage": 412_500,
    "power.limit.enforced": 650_000,
    "energy": 9_000_000,
    "temperature.gpu": 61,
    "temperature.memory": 72,
    "temperature.threshold.slowdown": 89,
    "temperature.threshold.shutdown": 92,
    "temperature.threshold.mem_max": 95,
    "fans": 1,
    "fan.0": 35,
    "clock.sm": 1485,
    "clock.max.sm": 1980,
    "clock.mem": 2619,
    "clocks.reasons": 0x24,
    "violation.power": 1_000_000_000,
    "violation.thermal": 2_000_000_000,
    "violation.sync_boost": 3_000_000_000,
    "violation.board_limit": 4_000_000_000,
    "violation.low_utilization": 5_000_000_000,
    "violation.reliability": 6_000_000_000,
    "field.269": 7_000_000_000,
    "ecc.volatile.corrected": 11,
    "ecc.volatile.uncorrected": 12,
    "ecc.aggregate.corrected": 13,
    "ecc.aggregate.uncorrected": 14,
    "retired.sbe": 2,
    "retired.dbe": 3,
    "retired.pending": 1,
    "remapped.correctable": 4,
    "remapped.uncorrectable": 5,
    "remapped.pending": 1,
    "remapped.failure": 0,
    "pcie.tx_bytes": 123_456,
    "pcie.rx_bytes": 654_321,
    "pcie.replay": 9,
}


def one_gpu(stage: Stage) -> Round:
    """Return a collection of one H100 with distinct values."""
    gpu = h100.h100(0).lacking("nvlink.").having(DISTINCT)
    stage.play(replace(scenarios.healthy(1), gpus=(gpu,)))
    return collect(stage.collector())


def test_every_field_in_base_units(stage: Stage) -> None:
    """Milliwatts, millijoules, MHz, percent and nanoseconds become W, J, Hz, ratios and s."""
    found = one_gpu(stage).of(GPU)
    expected: dict[Key, float] = {
        ("hw.gpu.utilization", "general"): 0.87,
        ("hw.gpu.utilization", "memory"): 0.41,
        ("hw.gpu.utilization", "encoder"): 0.03,
        ("hw.gpu.utilization", "decoder"): 0.05,
        ("hw.gpu.memory.limit",): 80_000 * MIB,
        ("hw.gpu.memory.usage",): 10_000 * MIB,
        ("hw.gpu.memory.utilization",): 0.125,
        ("tailcause.gpu.memory.reserved",): 500 * MIB,
        ("tailcause.gpu.memory.free",): 69_500 * MIB,
        ("tailcause.gpu.bar1.limit",): 256 * MIB,
        ("tailcause.gpu.bar1.usage",): 7 * MIB,
        ("hw.power",): 412.5,
        ("tailcause.gpu.power.limit",): 650,
        ("hw.energy",): 9000,
        ("hw.temperature", "gpu"): 61,
        ("hw.temperature", "memory"): 72,
        ("hw.temperature.limit", "high.degraded", "gpu"): 89,
        ("hw.temperature.limit", "high.critical", "gpu"): 92,
        ("hw.temperature.limit", "high.degraded", "memory"): 95,
        ("hw.fan.speed_ratio",): 0.35,
        ("tailcause.gpu.clock.frequency", "sm"): 1_485_000_000,
        ("tailcause.gpu.clock.frequency", "memory"): 2_619_000_000,
        ("tailcause.gpu.clock.deficit",): 0.25,
        **{
            ("tailcause.gpu.clock.event", reason): float(
                reason in {"sw_power_cap", "sw_thermal_slowdown"}
            )
            for reason in (
                *("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown"),
                *("sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown"),
                *("hw_power_brake_slowdown", "display_clock_setting"),
            )
        },
        ("tailcause.gpu.throttled_time", "power"): 1,
        ("tailcause.gpu.throttled_time", "thermal"): 2,
        ("tailcause.gpu.throttled_time", "sync_boost"): 3,
        ("tailcause.gpu.throttled_time", "board_limit"): 4,
        ("tailcause.gpu.throttled_time", "low_utilization"): 5,
        ("tailcause.gpu.throttled_time", "reliability"): 6,
        ("tailcause.gpu.throttled_time", "sw_thermal_slowdown"): 7,
        ("hw.errors", "ecc_corrected_volatile"): 11,
        ("hw.errors", "ecc_uncorrected_volatile"): 12,
        ("hw.errors", "ecc_corrected_aggregate"): 13,
        ("hw.errors", "ecc_uncorrected_aggregate"): 14,
        ("hw.errors", "pcie_replay"): 9,
        ("tailcause.gpu.retired_pages", "ecc_corrected"): 2,
        ("tailcause.gpu.retired_pages", "ecc_uncorrected"): 3,
        ("tailcause.gpu.retired_pages.pending",): 1,
        ("tailcause.gpu.remapped_rows", "ecc_corrected"): 4,
        ("tailcause.gpu.remapped_rows", "ecc_uncorrected"): 5,
        ("tailcause.gpu.remapped_rows.pending",): 1,
        ("tailcause.gpu.remapped_rows.failed",): 0,
        ("hw.gpu.io", "transmit", "pcie"): 123_456,
        ("hw.gpu.io", "receive", "pcie"): 654_321,
        ("hw.status", "ok"): 0,
        ("hw.status", "degraded"): 1,
        ("hw.status", "failed"): 0,
        ("hw.status", "predicted_failure"): 0,
        ("tailcause.gpu.state", "ok"): 1,
    }
    told = {key: round(value, 9) for key, value in found.items() if key[0] != "tailcause.gpu.info"}
    assert told == expected


def test_samples_fit_the_catalogue(stage: Stage) -> None:
    """Every sample of a full machine has a metric, attributes and a value that the catalogue allows."""
    stage.play(scenarios.mig(gpus=2).with_xid(1, 79))
    gpus = stage.collector()
    collect(gpus)
    time.sleep(0.15)  # the least that lies between two GPM samples
    samples = collect(gpus).samples
    assert {"tailcause.gpu.activity", "tailcause.gpu.process.memory"} <= {s.metric for s in samples}
    for sample in samples:
        assert set(sample.attributes) <= set(BY_NAME[sample.metric].attributes), sample
        assert sample.value >= 0
    keys = [(s.metric, *sorted(s.attributes.items())) for s in samples]
    assert len(keys) == len(set(keys))


def test_what_does_not_change_is_told_once(stage: Stage) -> None:
    """Model, serial number, driver and address are attributes of one series, not of all."""
    samples = one_gpu(stage).samples
    infos = [s.attributes for s in samples if s.metric == "tailcause.gpu.info"]
    assert infos == [
        {
            "hw.id": GPU,
            "hw.name": "nvidia0",
            "hw.vendor": "NVIDIA",
            "hw.model": "NVIDIA H100 80GB HBM3",
            "hw.serial_number": "1654023000000",
            "hw.driver_version": "570.133.20",
            "tailcause.gpu.index": "0",
            "tailcause.gpu.pci.address": "00000000:19:00.0",
        }
    ]
    with_model = {s.metric for s in samples if "hw.model" in s.attributes}
    assert with_model == {"tailcause.gpu.info"}


def test_old_consumer_gpu(stage: Stage) -> None:
    """What such a GPU lacks is absent, not 0, and the rest is there; its PCIe rate stands for the bytes."""
    stage.play(scenarios.not_supported())
    found = collect(stage.collector())
    metrics = {key[0] for key in found.of(GPU)}
    assert found.states() == {GPU: "ok"}
    assert {"hw.power", "hw.fan.speed_ratio", "tailcause.gpu.pcie.throughput"} <= metrics
    assert not metrics & {
        *("hw.energy", "hw.gpu.io", "tailcause.gpu.throttled_time", "tailcause.gpu.remapped_rows"),
        *("tailcause.gpu.activity", "tailcause.gpu.nvlink.active"),
    }
    assert ("hw.errors", "ecc_corrected_volatile") not in found.of(GPU)
    assert found.of(GPU)["tailcause.gpu.pcie.throughput", "transmit"] == 1_250_000 * 1024


def test_driver_of_2020(stage: Stage) -> None:
    """Without the newer functions the older ones serve; what has none is left out."""
    stage.play(scenarios.healthy(1))
    found = collect(stage.collector(hide=build.SYMBOLS_AFTER_2020)).of(GPU)
    assert found["hw.gpu.memory.usage",] > 0
    assert found["tailcause.gpu.clock.event", "gpu_idle"] == 0
    assert not [key for key in found if key[0] == "tailcause.gpu.memory.reserved"]


def test_failing_field_leaves_the_others(stage: Stage) -> None:
    """A field with an error that nobody expects is told by name; the GPU's other fields are there."""
    scenario = scenarios.healthy(1)
    gpu = scenario.gpus[0].faulty(Failure("nvmlDeviceGetPowerUsage", "UNKNOWN"))
    stage.play(scenario.with_gpu(0, gpu))
    found = collect(stage.collector())
    assert found.states() == {GPU: "failed"}
    assert "power: Unknown Error" in found.reason
    assert ("hw.power",) not in found.of(GPU)
    assert ("hw.energy",) in found.of(GPU)


def test_throttling_is_integrated(stage: Stage) -> None:
    """Between two collections the throttled time grows as the violation counter does."""
    stage.play(scenarios.throttled())
    gpus = stage.collector()
    key = ("tailcause.gpu.throttled_time", "thermal")
    first = collect(gpus).of(GPU)
    later = until(gpus, lambda found: found.of(GPU)[key] > first[key] + 0.05).of(GPU)
    assert later["tailcause.gpu.clock.deficit",] == 0.5
    assert later["tailcause.gpu.clock.event", "hw_thermal_slowdown"] == 1
    assert later["hw.status", "degraded"] == 1


def test_nvlink_traffic_and_errors(stage: Stage) -> None:
    """Traffic is summed over the links and told for each; so are the errors, by kind."""
    links = {"nvlink.0.tx": 100, "nvlink.0.rx": 10, "nvlink.1.tx": 1, "nvlink.1.rx": 2}
    errors = {"nvlink.0.crc_flit": 3, "nvlink.1.crc_flit": 4, "nvlink.1.replay": 5}
    still = {f"nvlink.{n}.{way}": 0 for n in range(2, 18) for way in ("tx", "rx")}
    scenario = scenarios.healthy(1).having(0, {**still, **links, **errors, "nvlink.17.state": 0})
    stage.play(scenario)
    found = collect(stage.collector()).of(GPU)
    assert found["hw.gpu.io", "transmit", "nvlink"] == 101 * 1024
    assert found["hw.gpu.io", "receive", "nvlink"] == 12 * 1024
    assert found["tailcause.gpu.nvlink.io", "transmit", "0"] == 100 * 1024
    assert found["hw.errors", "nvlink_crc_flit"] == 7
    assert found["hw.errors", "nvlink_replay"] == 5
    assert found["tailcause.gpu.nvlink.errors", "1"] == 9
    assert found["tailcause.gpu.nvlink.active",] == 17


def test_nvlink_rate(stage: Stage) -> None:
    """The rate follows from the bytes of two collections."""
    per_s = {f"nvlink.{n}.{way}": Ramp(0, 1_000) for n in range(18) for way in ("tx", "rx")}
    stage.play(scenarios.healthy(1).having(0, per_s))
    gpus = stage.collector()
    assert ("tailcause.gpu.nvlink.throughput",) not in collect(gpus).of(GPU)
    time.sleep(1.0)
    rate = collect(gpus).of(GPU)["tailcause.gpu.nvlink.throughput",]
    assert 0.8 < rate / (36 * 1_000 * 1024) < 1.2


def test_activity_of_two_samples(stage: Stage) -> None:
    """The units' activity needs two samples; metrics that the chip lacks are left out."""
    stage.play(scenarios.healthy(1))
    gpus = stage.collector()
    assert not [key for key in collect(gpus).of(GPU) if key[0] == "tailcause.gpu.activity"]
    activity = ("tailcause.gpu.activity", "sm")
    found = until(gpus, lambda found: activity in found.of(GPU)).of(GPU)
    assert found[activity] == 0.55
    assert found["tailcause.gpu.activity", "tensor"] == 0.21
    assert ("tailcause.gpu.activity", "fp64") not in found


def test_slow_fields_every_tenth_round(stage: Stage) -> None:
    """ECC errors are read at the first and the eleventh collection, and told in between as they were."""
    stage.play(scenarios.healthy(1))
    gpus = stage.collector()
    key = ("hw.errors", "ecc_corrected_volatile")
    first = collect(gpus)
    assert first.of(GPU)[key] == 0
    stage.play(scenarios.healthy(1).having(0, {"ecc.volatile.corrected": 8, "temperature.gpu": 70}))
    between = [collect(gpus) for _ in range(9)]
    assert [found.of(GPU)[key] for found in between] == [0] * 9
    assert between[0].of(GPU)["hw.temperature", "gpu"] == 70
    assert _stamp(between[-1], key[1]) == _stamp(first, key[1])
    assert collect(gpus).of(GPU)[key] == 8


def test_calls_of_a_collection(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection asks each GPU for little, and the slow fields of no two GPUs at once."""
    trace = tmp_path / "trace"
    monkeypatch.setenv("FAKENVML_TRACE", str(trace))
    stage.play(scenarios.healthy(8))
    gpus = stage.collector()
    rounds, before = [], 0
    for _ in range(12):
        collect(gpus)
        calls = len([c for c in read_trace(trace) if c.gpu >= 0])
        rounds.append((calls - before) / 8)
        before = calls
    assert max(rounds[1:]) <= 30 + 170 / 8


def _stamp(found: Round, error: str) -> list[int]:
    return [s.time_unix_ns for s in found.samples if s.attributes.get("error.type") == error]


def test_refused_field_is_left_out(stage: Stage) -> None:
    """A field that needs rights is missing; the GPU is not."""
    scenario = scenarios.healthy(1)
    refused = Failure("nvmlDeviceGetProcessUtilization", "NO_PERMISSION")
    stage.play(scenario.with_gpu(0, scenario.gpus[0].faulty(refused)))
    assert collect(stage.collector()).states() == {GPU: "ok"}


def test_processes_past_the_bound_are_counted(stage: Stage) -> None:
    """Of 70 processes the 64 with most memory are told, and six are counted as left out."""
    processes = tuple(Process(100_000 + n, (n + 1) * MIB) for n in range(70))
    scenario = scenarios.healthy(1)
    stage.play(scenario.with_gpu(0, replace(scenario.gpus[0], processes=processes)))
    found = collect(stage.collector())
    told = {key[1] for key in found.of(GPU) if key[0] == "tailcause.gpu.process.memory"}
    dropped = [s for s in found.samples if s.metric == "tailcause.pipe.dropped"]
    assert told == {str(100_000 + n) for n in range(6, 70)}
    assert [(s.value, s.attributes["reason"]) for s in dropped] == [(6, "too_many_processes")]
