"""The systemd unit is one that systemd takes, hardened as far as the agent's work allows."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.capabilities import NEEDED

UNIT = Path(__file__).parents[3] / "deploy" / "systemd" / "tailcause-agent.service"
MOST_EXPOSED = 4.5
"""Of 10, by `systemd-analyze security`; it is 3.9. Root with eBPF cannot come near 0."""
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)


def setting(name: str) -> list[str]:
    """Return the values of a setting."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def test_bounding_set_is_what_the_agent_has_a_use_for() -> None:
    """The capabilities are those that the code names, but for low ports, and each is explained."""
    [bounding] = setting("CapabilityBoundingSet")
    assert set(bounding.split()) == {one.name for one in NEEDED} - {"CAP_NET_BIND_SERVICE"}
    comments = " ".join(line for line in UNIT.read_text().splitlines() if line.startswith("#"))
    assert all(name.removeprefix("CAP_") in comments for name in bounding.split())


def test_service_speaks_notify() -> None:
    """The agent tells when it is ready, is reloaded by SIGHUP and restarted when its loop hangs."""
    assert setting("Type") == ["notify"]
    assert setting("ExecReload") == ["/bin/kill -HUP $MAINPID"]
    assert int(setting("WatchdogSec")[0]) >= 10
    assert setting("NoNewPrivileges") == ["yes"]


@needs_systemd
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` finds nothing, once the command is one that exists."""
    ended = verify(tmp_path, UNIT.read_text())
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Unknown key" in verify(tmp_path, UNIT.read_text() + "Hardend=yes\n").stderr


def verify(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Check a unit's text."""
    file = folder / UNIT.name
    file.write_text(re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    return subprocess.run(
        ("systemd-analyze", "verify", "--man=no", str(file)),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@needs_systemd
def test_exposure_is_bounded() -> None:
    """Systemd's own rating of the hardening stays below the bound."""
    ended = subprocess.run(
        ("systemd-analyze", "security", "--offline=yes", "--no-pager", str(UNIT)),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    rating = re.search(r"Overall exposure level.*?: (\d+\.\d)", ended.stdout)
    assert rating is not None, ended.stderr
    assert float(rating[1]) <= MOST_EXPOSED
