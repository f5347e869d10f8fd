"""Which missing capability is named."""

from pathlib import Path

import pytest

from ebpf.capabilities import effective, missing


@pytest.mark.parametrize(
    ("held", "lacking"),
    [
        ({"CAP_SYS_ADMIN"}, ()),
        ({"CAP_BPF", "CAP_PERFMON"}, ()),
        ({"CAP_BPF"}, ("CAP_PERFMON",)),
        ({"CAP_PERFMON"}, ("CAP_BPF",)),
        (set(), ("CAP_BPF", "CAP_PERFMON")),
    ],
)
def test_what_is_missing(held: set[str], lacking: tuple[str, ...]) -> None:
    """CAP_SYS_ADMIN stands for both others."""
    assert lacking == missing(frozenset(held))


def test_status_is_read(tmp_path: Path) -> None:
    """The effective set counts, not the permitted one."""
    status = tmp_path / "status"
    status.write_text("CapPrm:\t000001ffffffffff\nCapEff:\t0000008000200000\n")
    assert effective(status) == {"CAP_BPF", "CAP_SYS_ADMIN"}
