"""Records of the kernel's log, and the driver's lines in it."""

from pathlib import Path

import pytest

from agent.host.kmsg import KernelLog, KernelRecord, XidLine, parse_record, parse_xid

LINE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def test_record_in_parts() -> None:
    """Level, sequence and time come from the prefix; the facility and the dictionary do not count."""
    raw = b"30,1042,5140900,-;eth0: link down\n SUBSYSTEM=net\n DEVICE=n2\n"
    assert parse_record(raw) == KernelRecord(6, 1042, 5_140_900, "eth0: link down")


def test_flags_and_escapes() -> None:
    """Further fields of the prefix are skipped, and escaped bytes come back."""
    assert parse_record(rb"4,7,9,c,caller=T1;a\x09b") == KernelRecord(4, 7, 9, "a\tb")


@pytest.mark.parametrize("raw", [b"", b"no record", b"4,x,1,-;text", b"\xff\xfe"])
def test_garbage_is_no_record(raw: bytes) -> None:
    """What is not in the kernel's form is told apart, not raised."""
    assert parse_record(raw) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (LINE, XidLine("0000:3b:00", 79, 1234)),
        ("NVRM: Xid (PCI:0000:C1:00): 13, Graphics Exception", XidLine("0000:c1:00", 13)),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", XidLine("0000:03:00", 14)),
        ("NVRM: Xid (PCI:00000001:0f:00): 31, pid='<unknown>'", XidLine("0001:0f:00", 31)),
        ("NVRM: GPU at PCI:0000:3b:00: GPU-aa", None),
        ("NVRM: Xid (PCI:0000:3b:00): ??", None),
    ],
)
def test_xid_lines(line: str, expected: XidLine | None) -> None:
    """Every spelling of the driver's line is read, and no other line is taken for one."""
    assert parse_xid(line) == expected


def test_refused_log_is_an_os_error(tmp_path: Path) -> None:
    """Whoever opens it learns why it cannot be read."""
    with pytest.raises(FileNotFoundError):
        KernelLog(tmp_path / "kmsg")
