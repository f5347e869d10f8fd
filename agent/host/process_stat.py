"""The numbers of one process."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.host.files import read_text

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAX_THREADS = 128
"""Of a process with more, switches are not counted: its threads would have to be read one by one."""


@dataclass(frozen=True)
class ProcessStat:
    """What `/proc/PID/stat` says, in base units. Source: proc_pid_stat(5)."""

    start_ticks: int
    user_s: float
    system_s: float
    minor_faults: int
    major_faults: int
    threads: int
    virtual_bytes: int
    resident_bytes: int

    @classmethod
    def parse(cls, text: str) -> "ProcessStat":
        """Read the line; the name, which may hold anything, ends at the last parenthesis."""
        row = text[text.rindex(")") + 2 :].split()
        return cls(
            start_ticks=int(row[19]),
            user_s=int(row[11]) / _TICKS_PER_S,
            system_s=int(row[12]) / _TICKS_PER_S,
            minor_faults=int(row[7]),
            major_faults=int(row[9]),
            threads=int(row[17]),
            virtual_bytes=int(row[20]),
            resident_bytes=int(row[21]) * _PAGE_BYTES,
        )


def executable(directory: Path) -> str:
    """Return the name of a process's executable, or the kernel's name of it where that may not be read."""
    try:
        return (directory / "exe").readlink().name.removesuffix(" (deleted)")
    except OSError:
        return read_text(directory / "comm").rstrip("\n")


def open_files(directory: Path) -> int:
    """Return how many files a process has open; raises OSError."""
    return len(os.listdir(directory / "fd"))  # noqa: PTH208  names alone


def disk_bytes(directory: Path) -> dict[str, int]:
    """Return the bytes by direction that a process caused on disks; raises OSError.

    Source: proc_pid_io(5).
    """
    rows = dict(_pairs(read_text(directory / "io")))
    return {"read": rows["read_bytes"], "write": rows["write_bytes"]}


@dataclass
class Switches:
    """Adds up the switches of a process's threads; its own file has those of the first thread alone.

    A thread that ends between two readings takes its last switches along, so the sums are a lower bound, but never fall.
    """

    voluntary: int = 0
    involuntary: int = 0
    _before: dict[str, tuple[int, int]] = field(default_factory=dict)

    def read(self, directory: Path) -> bool:
        """Read all threads; False when they are too many. Raises OSError."""
        threads = os.listdir(directory / "task")  # noqa: PTH208  names alone
        if len(threads) > MAX_THREADS:
            return False
        now = dict(_of_threads(directory / "task", threads))
        first = not self._before
        for thread, (voluntary, involuntary) in now.items():
            before = self._before.get(thread, (voluntary, involuntary) if first else (0, 0))
            self.voluntary += max(0, voluntary - before[0])
            self.involuntary += max(0, involuntary - before[1])
        self._before = now
        return True


def _of_threads(tasks: Path, threads: list[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    for thread in threads:
        try:
            rows: Mapping[str, int] = dict(_pairs(read_text(tasks / thread / "status")))
        except OSError:  # it has just ended
            continue
        yield thread, (rows["voluntary_ctxt_switches"], rows["nonvoluntary_ctxt_switches"])


def _pairs(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if (number := value.strip()).isdigit():
            yield name, int(number)
