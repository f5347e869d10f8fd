"""The folder of a run."""

import stat
from pathlib import Path

import msgspec
import pytest

from detector.cli.demo import rundir
from detector.cli.demo.rundir import RunDir, open_run, planned, prune
from detector.errors import CannotStartError


def _old_run(runs: Path, name: str) -> RunDir:
    run = RunDir(runs / name)
    run.create()
    return run


def test_the_truth_is_nobody_elses(tmp_path: Path) -> None:
    """Only its owner may look into the folder."""
    run = open_run(None, tmp_path, 7)

    assert stat.S_IMODE(run.truth.stat().st_mode) == 0o700


def test_runs_are_apart(tmp_path: Path) -> None:
    """Two runs of one seed in one second differ all the same."""
    first, second = (open_run(None, tmp_path, 7).path for _ in range(2))

    assert first != second
    assert first.parent == tmp_path / "demo"
    assert "-7" in first.name


def test_only_the_newest_runs_are_kept(tmp_path: Path) -> None:
    """A demo a day does not fill the disk."""
    for index in range(5):
        _old_run(tmp_path, f"2026010{index}").close()

    prune(tmp_path, 2)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["20260103", "20260104"]


def test_a_run_that_goes_on_is_not_removed(tmp_path: Path) -> None:
    """However old it is."""
    running = _old_run(tmp_path, "20260101")
    for name in ("20260102", "20260103"):
        _old_run(tmp_path, name).close()

    prune(tmp_path, 1)
    running.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["20260101", "20260103"]


def test_folders_that_are_no_runs_are_left_alone(tmp_path: Path) -> None:
    """Somebody's notes beside the runs stay."""
    (tmp_path / "0-notes").mkdir()
    _old_run(tmp_path, "20260102").close()

    prune(tmp_path, 1)

    assert (tmp_path / "0-notes").is_dir()


def test_a_chosen_folder_must_be_empty(tmp_path: Path) -> None:
    """Nothing of the user's is mixed with a run."""
    (tmp_path / "mine").touch()

    with pytest.raises(CannotStartError, match="is not empty: choose another --run-dir"):
        open_run(tmp_path, tmp_path, 7)


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    """A file in the way will do for every reason."""
    (tmp_path / "file").touch()

    with pytest.raises(CannotStartError, match=r"cannot write to .*file/run: Not a directory"):
        open_run(tmp_path / "file" / "run", tmp_path, 7)


def test_a_full_disk_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is needed and what there is stand in the message."""
    monkeypatch.setattr(rundir, "_NEEDED_BYTES", 2**60)

    with pytest.raises(CannotStartError, match="MB free and a run needs"):
        open_run(None, tmp_path, 7)


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    """The kernel's limit is told as what to do."""
    with pytest.raises(CannotStartError, match="choose a shorter --run-dir"):
        open_run(tmp_path / ("x" * 120), tmp_path, 7)


def test_json_files_are_whole(tmp_path: Path) -> None:
    """No partial file is left beside it."""
    run = open_run(None, tmp_path, 7)

    path = run.write_json("run.json", {"seed": 7})

    assert msgspec.json.decode(path.read_bytes()) == {"seed": 7}
    assert not list(run.path.glob(".*"))


def test_planning_makes_nothing(tmp_path: Path) -> None:
    """A dry run leaves no folder."""
    planned(None, tmp_path, 7)

    assert list(tmp_path.iterdir()) == []
