"""The runner of the second kernel, with a shell in the place of the emulator: what its outcomes mean."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kernels import run, stock
from tests.kernels.stock import CannotStartError

LISTS = ("tests/kernels/quick.txt", "tests/expected-skips.txt")


@contextmanager
def guest(share: Path, script: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a script that writes what the guest would."""
    with run.emulator(("sh", "-c", f"cd {share}; {script}"), share, share) as started:
        yield started


def test_passed_tests_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the guest prints is shown, once, and its status is the runner's."""
    with guest(tmp_path, "echo 13 passed >log; sleep 0.1; echo 0 >exit; sleep 60") as started:
        assert run.follow(started, tmp_path, 60.0) == run.PASSED
    assert capsys.readouterr().out == "13 passed\n"
    assert started.poll() is not None


def test_failed_test_fails(tmp_path: Path) -> None:
    """A failure in the guest is one here."""
    with guest(tmp_path, "echo 1 failed >log; echo 1 >exit; sleep 60") as started:
        assert run.follow(started, tmp_path, 60.0) == run.FAILED


@pytest.mark.parametrize(
    ("script", "timeout_s", "reason"),
    [
        ("echo 3 >exit; sleep 60", 60.0, "could not be set up"),
        ("echo panic", 60.0, "the emulator ended"),
        ("echo begun >log; exec sleep 60", 0.1, "not finished after"),
        ("exec sleep 60", 60.0, "silent for"),
        ("echo begun >log; exec sleep 60", 60.0, "silent for"),
    ],
    ids=["set-up", "dead", "late", "no boot", "stands still"],
)
def test_no_testing_is_not_a_failure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    timeout_s: float,
    reason: str,
) -> None:
    """An emulator that dies, stands still or cannot be set up is inconclusive, with the reason."""
    monkeypatch.setattr(run, "BOOT_S", 0.5)
    monkeypatch.setattr(run, "STILL_S", 0.5)
    with guest(tmp_path, script) as started, pytest.raises(CannotStartError, match=reason):
        run.follow(started, tmp_path, timeout_s)
    assert started.poll() is not None


def test_missing_package_is_inconclusive(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where something is missing the last line says what to do, and the exit code is 3."""
    monkeypatch.setattr(stock, "TOOLS", {"no-such-tool": "no-such-package"})
    monkeypatch.setenv("TAILCAUSE_NO_APT", "1")
    assert run.main(["--quick"]) == run.INCONCLUSIVE
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("test-kernels: inconclusive: ")
    assert "no-such-package" in last or "x86_64" in last


def test_command_that_hangs_or_is_absent_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetching has a limit of time, and says which command did not work."""
    monkeypatch.setattr(stock, "_FETCH_S", 0.2)
    with pytest.raises(CannotStartError, match="timed out"):
        stock.run("sleep", "60")
    with pytest.raises(CannotStartError, match="no-such-command"):
        stock.run("no-such-command")
    with pytest.raises(CannotStartError, match="404"):
        stock.run(sys.executable, "-c", "import sys; sys.exit('404 Not Found')")


def test_quick_form_has_both_passes() -> None:
    """With BTF and without, and every listed file is one of eBPF's."""
    for section in ("with BTF", "without BTF"):
        tests = run.listed(section)
        assert tests
        assert all(test.startswith("tests/privileged/test_ebpf_") for test in tests)


@pytest.mark.parametrize("listing", LISTS)
def test_every_listed_test_exists(listing: str) -> None:
    """A test that is renamed is renamed in the lists of tests too."""
    lines = [line.split("#")[0].strip() for line in (run.REPO / listing).read_text().splitlines()]
    for line in lines:
        path, _, name = line.partition("::")
        if not line or line.startswith("[") or not name:
            continue
        names = {
            node.name
            for node in ast.parse((run.REPO / path).read_text()).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert any(found.startswith(name.split("[")[0]) for found in names), line
