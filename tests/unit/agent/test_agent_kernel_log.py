"""Lines of the kernel's log that matter become log records; floods and losses are counted."""

from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2

from agent.host.kernel_events import KernelEvents
from agent.host.kmsg import KernelRecord
from agent.kernel_log import KernelLogForwarder, KernelLogSettings
from agent.otlp.codec import PROTOBUF, Signal, parse
from agent.otlp.decode import attributes
from agent.otlp.sender import Sender
from agent.telemetry.model import SignalState
from agent.telemetry.names import BY_NAME

KILLS = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-1,mems_allowed=0,oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c1,task=VLLM::Engine,pid=4242,uid=0",
    "Memory cgroup out of memory: Killed process 4242 (VLLM::Engine) total-vm:9132kB, anon-rss:8132kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:56kB oom_score_adj:900",
)


def record(text: str, sequence: int = 1, time_us: int = 0) -> KernelRecord:
    """Return a record of a text."""
    return KernelRecord(4, sequence, time_us, text)


@pytest.mark.parametrize(
    ("line", "event", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
            "xid",
            {"error.type": "79", "process.pid": 1234, "tailcause.gpu.pci.address": "0000:3b:00"},
        ),
        (
            "Out of memory: Killed process 812 (java (x)) total-vm:1kB, anon-rss:1kB",
            "oom_kill",
            {"process.pid": 812, "process.executable.name": "java (x)"},
        ),
        ("e1000e 0000:00:1f.6 eno1: NIC Link is Down", "link_down", {"network.interface.name": "eno1"}),
        ("mlx5_core 0000:17:00.0 ens1f0np0: Link down", "link_down", {"network.interface.name": "ens1f0np0"}),
        ("bond0: (slave eth1): link status definitely down, disabling slave", None, {}),
        ("eth0: Link is Up - 1Gbps/Full - flow control rx/tx", "link_up", {"network.interface.name": "eth0"}),
        ("mce: [Hardware Error]: Machine check events logged", "machine_check", {}),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00", "machine_check", {"cpu.logical_number": 3}),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0", "memory_error", {"system.device": "MC0", "error.type": "CE"}),
        ("nvme nvme0: I/O 123 QID 4 timeout, aborting", "nvme_timeout", {"system.device": "nvme0"}),
        ("nvme nvme1: I/O tag 12 (300c) opcode 0x2 (I/O Cmd) QID 4 timeout, aborting", "nvme_timeout", {"system.device": "nvme1"}),
        ("nvme nvme0: controller is down; will reset: CSTS=0x3", "nvme_reset", {"system.device": "nvme0"}),
        ("I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x80700", "io_error", {"system.device": "sda", "error.type": "I/O"}),
        ("blk_update_request: critical medium error, dev sdb, sector 1", "io_error", {"system.device": "sdb", "error.type": "critical medium"}),
        ("Buffer I/O error on dev nvme0n1p1, logical block 0, async page read", "io_error", {"system.device": "nvme0n1p1"}),
        (
            "INFO: task kworker/u8:3:99 blocked for more than 122 seconds.",
            "hung_task",
            {"process.executable.name": "kworker/u8:3", "process.pid": 99, "tailcause.kernel.stuck": 122},
        ),
        (
            "watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [python3:77]",
            "soft_lockup",
            {"cpu.logical_number": 3, "tailcause.kernel.stuck": 23, "process.pid": 77},
        ),
        ("watchdog: Watchdog detected hard LOCKUP on cpu 1", "hard_lockup", {"cpu.logical_number": 1}),
        ("EXT4-fs (sda1): mounted filesystem with ordered data mode", None, {}),
        ("IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready", None, {}),
        ("audit: type=1400 msg='Out of memory: Killed process 1 (x)'", None, {}),
        ("oom_reaper: reaped process 4242 (x), now anon-rss:0kB", None, {}),
    ],
)  # fmt: skip
def test_lines(line: str, event: str | None, expected: dict[str, object]) -> None:
    """Each kind of line is told with what it names, and no other line is taken for one."""
    found = KernelEvents().recognise(record(line))
    if event is None:
        assert found is None
        return
    assert found is not None
    assert found.name == f"tailcause.kernel.{event}"
    assert {key: found.attributes.get(key) for key in expected} == expected


def test_a_kill_has_its_cgroup() -> None:
    """The line before the kill's own says where it was and why; one event comes of both."""
    events = KernelEvents()
    first, second = (events.recognise(record(line)) for line in KILLS)
    assert first is None
    assert second is not None
    assert second.name == "tailcause.kernel.cgroup_oom_kill"
    assert second.attributes == {
        "process.pid": 4242,
        "process.executable.name": "VLLM::Engine",
        "tailcause.cgroup.path": "/kubepods/pod1/c1",
        "tailcause.oom.constraint": "CONSTRAINT_MEMCG",
    }
    again = events.recognise(record(KILLS[1]))
    assert again is not None
    assert "tailcause.cgroup.path" not in again.attributes


def test_details_without_kills_do_not_pile_up() -> None:
    """Only the last few are remembered."""
    events = KernelEvents()
    for pid in range(100):
        events.recognise(record(KILLS[0].replace("4242", str(pid))))
    assert len(events._kills) == 16


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def unix_ns(self) -> int:
        """Return wall time, a million seconds ahead of the monotonic clock."""
        return int((self.now_s + 1e6) * 1e9)

    def monotonic_s(self) -> float:
        """Return monotonic time."""
        return self.now_s


def forwarder(path: Path, clock: Clock, per_minute: int = 100) -> tuple[KernelLogForwarder, Sender]:
    """Return an opened forwarder of a file that stands for the device, and its sender, which does not run."""
    sender = Sender("http://127.0.0.1:1")
    settings = KernelLogSettings(path=path, per_minute=per_minute)
    made = KernelLogForwarder(
        settings, sender, {"host.name": "n"}, clock.unix_ns, clock.monotonic_s
    )
    made._open()
    return made, sender


def sent(sender: Sender) -> list[logs_service_pb2.ExportLogsServiceRequest]:
    """Take what a sender was offered."""
    found = []
    while (batch := sender._outbox.take()) is not None:
        assert batch.signal is Signal.LOGS
        message = parse(batch.signal, batch.body, PROTOBUF)
        assert isinstance(message, logs_service_pb2.ExportLogsServiceRequest)
        found.append(message)
    return found


def write(path: Path, *lines: str, sequence: int = 1, time_us: int = 0) -> None:
    """Let the file hold one record, which is what one read of the device returns."""
    [line] = lines
    path.write_text(f"4,{sequence},{time_us},-;{line}\n")


def test_a_line_becomes_a_record(tmp_path: Path) -> None:
    """Name, severity, a body without values, attributes and the time at which it was written."""
    clock, path = Clock(), tmp_path / "kmsg"
    path.write_text("")
    made, sender = forwarder(path, clock)
    write(path, "I/O error, dev sda, sector 2048", time_us=int(999.5e6))
    made.step()
    [message] = sent(sender)
    [resource] = message.resource_logs
    assert attributes(resource.resource.attributes) == {"host.name": "n"}
    [log] = resource.scope_logs[0].log_records
    assert log.event_name == "tailcause.kernel.io_error"
    assert (log.severity_number, log.severity_text) == (17, "ERROR")
    assert log.body.string_value == "A request to a disk failed."
    assert attributes(log.attributes) == {"system.device": "sda", "error.type": "I/O"}
    assert log.observed_time_unix_nano - log.time_unix_nano == 500_000_000


def test_floods_are_cut_and_counted(tmp_path: Path) -> None:
    """A hundred a minute go out, the rest is counted, and a minute later there is room again."""
    clock = Clock()
    made, sender = forwarder(_empty(tmp_path), clock)
    made._forward([record("I/O error, dev sda, sector 1", n) for n in range(1, 251)])
    assert made.dropped == {"rate": 150}
    assert made.seen == {"tailcause.kernel.io_error": 250}
    clock.now_s += 30
    made._forward([record("I/O error, dev sda, sector 1", n) for n in range(251, 351)])
    assert made.dropped == {"rate": 200}
    assert [len(m.resource_logs[0].scope_logs[0].log_records) for m in sent(sender)] == [100, 50]


def _empty(folder: Path) -> Path:
    path = folder / "kmsg"
    path.write_text("")
    return path


def test_lost_records_are_counted(tmp_path: Path) -> None:
    """A gap in the kernel's numbers is what it overwrote."""
    made, _ = forwarder(_empty(tmp_path), Clock())
    made._forward([record("x", 10), record("x", 11), record("x", 50)])
    assert made.dropped == {"overrun": 38}


def test_states(tmp_path: Path) -> None:
    """A log that is not there, or that may not be read, is a state and not an error."""
    made, _ = forwarder(tmp_path / "missing", Clock())
    assert made.state is SignalState.NOT_SUPPORTED
    made, _ = forwarder(_empty(tmp_path), Clock())
    assert made.state is SignalState.OK
    for sample in made.own_samples():
        assert sample.metric in BY_NAME


async def test_switched_off_is_disabled(tmp_path: Path) -> None:
    """Then it ends at once and opens nothing."""
    made = KernelLogForwarder(KernelLogSettings(enabled=False, path=_empty(tmp_path)), None, {})
    await made.run()
    assert made.state is SignalState.DISABLED
