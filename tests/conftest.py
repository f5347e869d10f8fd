"""Capabilities of this machine, and the check that nothing is skipped silently."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def capability_set() -> str:
    """Return the section of expected-skips.txt that applies to this machine."""
    who = "root" if os.geteuid() == 0 else "user"
    return f"{who} cgroup={_cgroup_version()}"


def _cgroup_version() -> str:
    kinds = {
        line.split(" - ")[1].split()[0]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    }
    v1, v2 = "cgroup" in kinds, "cgroup2" in kinds
    return "hybrid" if v1 and v2 else "v1" if v1 else "v2" if v2 else "none"


def expected_skips(path: Path, section: str) -> list[str]:
    """Return the test ids (or prefixes) listed for a capability set."""
    found: list[str] = []
    current = ""
    for raw in path.read_text().splitlines():
        line = raw.split("#")[0].strip()
        if line.startswith("["):
            current = line.strip("[]")
        elif line and current == section:
            found.append(line)
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --check-skips FILE."""
    parser.addoption(
        "--check-skips", metavar="FILE", help="fail when the skips differ from this list"
    )


class SkipLedger:
    """Collects skips and compares them with the list for this machine."""

    def __init__(self, listing: Path) -> None:
        self.listing = listing
        self.skipped: dict[str, str] = {}
        self.wrong: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note each skipped test with its reason."""
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = (
                report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            )
            self.skipped[report.nodeid] = reason

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Fail the session when the skips are not the expected ones."""
        expected = expected_skips(self.listing, capability_set())
        self.wrong = [
            f"skipped, not listed: {test}" for test in self.skipped if not _listed(test, expected)
        ]
        self.wrong += [
            f"listed, not skipped: {prefix}"
            for prefix in expected
            if not any(_listed(t, [prefix]) for t in self.skipped)
        ]
        if self.wrong and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print every skip, and what differs from the list."""
        terminalreporter.section(f"skips on a machine with [{capability_set()}]")
        for test, reason in sorted(self.skipped.items()):
            terminalreporter.write_line(f"{test}: {reason}")
        if not self.skipped:
            terminalreporter.write_line("none")
        for line in self.wrong:
            terminalreporter.write_line(f"ERROR {line} (see {self.listing})", red=True)


def _listed(test: str, prefixes: list[str]) -> bool:
    return any(test.startswith(prefix) for prefix in prefixes)


def pytest_configure(config: pytest.Config) -> None:
    """Switch the skip check on when asked to."""
    listing = config.getoption("--check-skips")
    if listing:
        config.pluginmanager.register(SkipLedger(Path(listing)), "skip-ledger")
