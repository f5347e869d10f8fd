"""The list of skips: which sections apply, and what a run over a part of the tests may say."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import expected_skips

LISTING = """
[root]
a.py
[root cgroup=v2]   # both must be true
b.py::test_x
[user]
c.py
"""
CASE = """
import pytest
def test_runs(): pass
@pytest.mark.skip(reason="needs a moon")
def test_skipped(): pass
"""
ROOT = Path(__file__).parents[3]
CONFTEST = ROOT / "tests/conftest.py"


def run(folder: Path, listed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run two tests, one of which is skipped, against a list."""
    (folder / "test_case.py").write_text(CASE)
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "skips.txt").write_text(f"[root]\n{listed}\n[user]\n{listed}\n")
    return subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(folder),
         "-p", "no:cacheprovider", "--check-skips", str(folder / "skips.txt"), *arguments),
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_section_applies_where_all_of_its_heading_is_true(tmp_path: Path) -> None:
    """A machine may be more than a heading says, not less."""
    listing = tmp_path / "skips.txt"
    listing.write_text(LISTING)
    assert expected_skips(listing, frozenset({"root", "cgroup=v1"})) == ["a.py"]
    assert expected_skips(listing, frozenset({"root", "cgroup=v2"})) == ["a.py", "b.py::test_x"]
    assert expected_skips(listing, frozenset({"user", "cgroup=v2"})) == ["c.py"]


def test_listed_skip_is_fine(tmp_path: Path) -> None:
    """It is printed with its reason."""
    done = run(tmp_path, "test_case.py::test_skipped")
    assert done.returncode == 0, done.stdout
    assert "needs a moon" in done.stdout


def test_skip_that_is_not_listed_fails(tmp_path: Path) -> None:
    """Nothing is skipped silently."""
    done = run(tmp_path, "")
    assert done.returncode == 1
    assert "ERROR skipped, not listed: test_case.py::test_skipped" in done.stdout


def test_listed_test_that_runs_fails(tmp_path: Path) -> None:
    """A list that is out of date is found out, in a part of the tests too."""
    listed = "test_case.py::test_skipped\ntest_case.py::test_runs"
    for part in ((), ("test_case.py::test_runs",)):
        done = run(tmp_path, listed, *part)
        assert done.returncode == 1
        assert "ERROR listed, not skipped: test_case.py::test_runs" in done.stdout


def test_of_a_part_nothing_is_said_about_the_rest(tmp_path: Path) -> None:
    """A test that is listed and does not exist is an error where all tests run, and there alone."""
    listed = "test_case.py::test_skipped\ngone.py::test_x"
    assert run(tmp_path, listed, "test_case.py").returncode == 0
    assert run(tmp_path, listed, "-k", "runs").returncode == 0
    done = run(tmp_path, listed)
    assert done.returncode == 1
    assert "ERROR listed, not skipped: gone.py::test_x" in done.stdout
