"""The board shows the latest, and the pace neither drifts nor catches up."""

from agent.pace import next_beat_s
from agent.pipeline import Board, disabled_samples
from agent.telemetry.model import Sample


def sample(value: float) -> Sample:
    """Return a sample."""
    return Sample("system.memory.limit", value, 1)


def test_new_collection_replaces_the_old() -> None:
    """A signal shows its last collection only, others stay."""
    board = Board()
    board.put("a", [sample(1), sample(2)])
    board.put("b", [sample(3)])
    board.put("a", [sample(4)])
    assert [s.value for s in board.snapshot()] == [4, 3]


def test_signal_without_data_shows_nothing() -> None:
    """An old value does not pass for a new one."""
    board = Board()
    board.put("a", [sample(1)])
    board.put("a", [])
    assert board.snapshot() == []


def test_sources_are_asked_at_each_snapshot() -> None:
    """The agent's own counters are current."""
    board = Board()
    counts = iter((1, 2))
    board.add_source(lambda: [sample(next(counts))])
    assert [board.snapshot()[0].value, board.snapshot()[0].value] == [1, 2]


def test_beats_keep_their_phase() -> None:
    """The next beat is on the grid however late the work ended, and missed beats are skipped."""
    assert next_beat_s(10.0, 1.0, 10.3) == 11.0
    assert next_beat_s(10.0, 1.0, 13.7) == 14.0


def test_disabled_signals_say_so() -> None:
    """A signal that is switched off has the state `disabled`."""
    [found] = disabled_samples(["gpu"], 7)
    assert dict(found.attributes) == {
        "tailcause.signal.name": "gpu",
        "tailcause.signal.state": "disabled",
    }
