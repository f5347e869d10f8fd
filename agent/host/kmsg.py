"""The kernel's log as it comes: records of /dev/kmsg, and what the NVIDIA driver reports in it.

Source: Documentation/ABI/testing/dev-kmsg; for the driver's lines NVIDIA's "Xid Errors", "Viewing Xid Error Messages".
"""

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

KMSG = Path("/dev/kmsg")
_RECORD_BYTES = 8192
"""The kernel refuses (EINVAL) to hand a record to a smaller buffer."""
_RECORD = re.compile(r"(?P<prefix>\d+),(?P<sequence>\d+),(?P<time_us>\d+),[^;]*;(?P<text>[^\n]*)")
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?\): "
    r"(?P<code>\d+)(?:, pid='?(?P<pid>\d+))?"
)
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


@dataclass(frozen=True)
class KernelRecord:
    """One record: `level` is syslog's (0 emergency to 7 debug), `time_us` since boot."""

    level: int
    sequence: int
    time_us: int
    text: str


@dataclass(frozen=True)
class XidLine:
    """An Xid that the driver wrote; `pci` is domain:bus:device in lower-case hex."""

    pci: str
    code: int
    pid: int | None = None


def parse_record(raw: bytes) -> KernelRecord | None:
    """Return the record of one read, None where it is none; continuation lines are left out."""
    match = _RECORD.match(raw.decode(errors="replace"))
    if match is None:
        return None
    text = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), match["text"])
    level = int(match["prefix"]) & 7
    return KernelRecord(level, int(match["sequence"]), int(match["time_us"]), text)


def parse_xid(text: str) -> XidLine | None:
    """Return the Xid that a line reports, None for any other line."""
    match = _XID.search(text)
    if match is None:
        return None
    pid = int(match["pid"]) if match["pid"] else None
    return XidLine(pci_address(match["pci"]), int(match["code"]), pid)


def pci_address(text: str) -> str:
    """Return domain:bus:device of any spelling ("00000000:3B:00.0"), as the kernel writes it ("0000:3b:00")."""
    domain, bus, device = text.partition(".")[0].split(":")
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}"


class KernelLog:
    """What is written to the kernel's log from now on; raises OSError where it may not be read.

    `overruns` counts the times that the kernel overwrote records before they were read here.
    """

    def __init__(self, path: Path = KMSG) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._descriptor, 0, os.SEEK_END)
        self.overruns = 0

    def read(self, limit: int = 1000) -> list[KernelRecord]:
        """Return the records that have come since, at most `limit`; never waits."""
        records: list[KernelRecord] = []
        while len(records) < limit:
            try:
                raw = os.read(self._descriptor, _RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as exc:
                if exc.errno != errno.EPIPE:
                    raise
                self.overruns += 1  # the next read goes on with the oldest record there is
                continue
            if not raw:  # a file in the place of the device
                break
            record = parse_record(raw)
            if record is not None:
                records.append(record)
        return records

    def fileno(self) -> int:
        """Return the descriptor, to wait on."""
        return self._descriptor

    def close(self) -> None:
        """Close the log."""
        os.close(self._descriptor)
