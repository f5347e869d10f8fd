"""The kernel's real log, written to and read."""

import os
import time
from pathlib import Path

import pytest

from agent.host.kmsg import KMSG, KernelLog, KernelRecord

pytestmark = [
    pytest.mark.privileged,
    pytest.mark.skipif(os.geteuid() != 0, reason="writing to the kernel's log needs root"),
]


def test_only_what_comes_after_the_opening(tmp_path: Path) -> None:
    """A line of a moment ago is not read again; a new one is, with its level."""
    before, after = f"tailcause-test: {tmp_path} before", f"tailcause-test: {tmp_path} after"
    KMSG.write_text(f"<4>{before}\n")
    log = KernelLog()
    KMSG.write_text(f"<3>{after}\n")
    found: list[KernelRecord] = []
    deadline = time.monotonic() + 20
    while not any(record.text == after for record in found) and time.monotonic() < deadline:
        found += log.read()
    log.close()
    assert [(r.level, r.text) for r in found if str(tmp_path) in r.text] == [(3, after)]
