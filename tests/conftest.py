"""What this machine is and has, and the check that nothing is skipped silently."""

import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.js_packages import why_missing
from tests.support.store_programs import POSTGRES, REDIS


def facts() -> frozenset[str]:
    """Return what can be said of this machine in the headings of expected-skips.txt."""
    said = {
        "root" if os.geteuid() == 0 else "user",
        f"cgroup={_cgroup_version()}",
        "btf" if Path("/sys/kernel/btf/vmlinux").exists() else "no-btf",
        "emulated" if os.environ.get("TAILCAUSE_TIMING") == "loose" else "real",
    }
    if _kernel() < _DELAYED_DEQUEUE:
        said.add("kernel<6.12")
    if why_missing():  # as it is once the tests have tried
        said.add("no-js-sdk")
    if shutil.which("systemd-analyze") is None:
        said.add("no-systemd")
    if importlib.util.find_spec("torch") is None:
        said.add("no-torch")
    said |= {
        f"no-{name}" for name, found in (("postgres", POSTGRES), ("redis", REDIS)) if found is None
    }
    return frozenset(said)


_DELAYED_DEQUEUE = (6, 12)


def _kernel() -> tuple[int, int]:
    major, minor = platform.release().split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)) or 0)


def _cgroup_version() -> str:
    kinds = {
        line.split(" - ")[1].split()[0]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    }
    v1, v2 = "cgroup" in kinds, "cgroup2" in kinds
    return "hybrid" if v1 and v2 else "v1" if v1 else "v2" if v2 else "none"


def expected_skips(path: Path, of_machine: frozenset[str]) -> list[str]:
    """Return the test ids (or prefixes) in the sections whose headings are all true of a machine."""
    found: list[str] = []
    applies = False
    for raw in path.read_text().splitlines():
        line = raw.split("#")[0].strip()
        if line.startswith("["):
            applies = of_machine.issuperset(line.strip("[]").split())
        elif line and applies:
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
        self.left_out: set[str] = set()
        self.chosen: set[str] = set()
        self.skipped: dict[str, str] = {}
        self.wrong: list[str] = []

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note what this run leaves out."""
        self.left_out |= {item.nodeid for item in items}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what this run is about."""
        self.chosen = {item.nodeid for item in session.items}

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
        expected = expected_skips(self.listing, facts())
        if session.config.args_source is pytest.Config.ArgsSource.ARGS or self.left_out:
            # of a part of the tests, nothing can be said of those that are not in it
            expected = [p for p in expected if any(_listed(test, [p]) for test in self.chosen)]
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
        terminalreporter.section(f"skips on a machine that is [{' '.join(sorted(facts()))}]")
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


_ON_THE_MACHINE = ("privileged", "e2e")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give a test of the machine itself a second chance, which the summary names: what else runs on it is not ours.

    A disk read for somebody else's page, a thread that the kernel moves in its sleep: one such test in two thousand
    fails for it. One that fails twice has found something.
    """
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return
    for item in items:
        if any(part in item.path.parts for part in _ON_THE_MACHINE):
            item.add_marker(pytest.mark.flaky(reruns=1))
