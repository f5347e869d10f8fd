"""The spool on a file system that is really full."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.otlp.batch import Batch
from agent.otlp.codec import Signal
from agent.otlp.spool import Spool, SpoolSettings

pytestmark = [
    pytest.mark.privileged,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root"),
]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 64 KiB."""
    mount = ("mount", "-t", "tmpfs", "-o", "size=64k", "tailcause-test", str(tmp_path))
    subprocess.run(mount, check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(("umount", "-l", str(tmp_path)), check=True)


def test_full_disk(small_disk: Path) -> None:
    """What fits is kept whole, the rest is refused and counted, and room that comes back is used."""
    now_s = 0.0
    spool = Spool(SpoolSettings(small_disk / "spool", 1 << 20), lambda *_: None, lambda: now_s)
    spool.recover()
    taken = [n for n in range(1, 30) if spool.append(Batch(Signal.TRACES, bytes(8000), n))]
    assert 3 <= len(taken) < 10
    assert spool.write_failures["ENOSPC"] == 1
    for _ in taken[:-1]:
        head = spool.head()
        assert head is not None
        spool.settle(head)
    last = spool.head()
    assert last is not None
    assert last.items == taken[-1]
    spool.settle(last)
    now_s += 60
    assert spool.append(Batch(Signal.TRACES, bytes(8000), 99))
    head = spool.head()
    assert head is not None
    assert (head.items, head.body) == (99, bytes(8000))
    spool.close()
