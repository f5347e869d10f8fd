"""What is rarely done is done by count, by the clock, and in turns."""

from agent.host.rarely import Rarely


def test_by_count() -> None:
    """The first time, and every fifth after that."""
    rarely = Rarely(5)
    assert [n for n in range(16) if rarely.due(n * 0.001)] == [0, 5, 10, 15]


def test_by_the_clock() -> None:
    """Rounds that are far apart do it each time."""
    rarely = Rarely(5)
    assert [n for n in range(6) if rarely.due(n * 3.0)] == [0, 2, 4]
    assert all(Rarely(5).due(n * 15.0) for n in range(4))


def test_in_turns() -> None:
    """Things that were begun together are not done together again."""
    things = [Rarely(5, turn) for turn in range(5)]
    due = [[turn for turn, thing in enumerate(things) if thing.due(n * 0.001)] for n in range(11)]
    assert due == [[0, 1, 2, 3, 4], [4], [3], [2], [1], [0], [4], [3], [2], [1], [0]]


def test_hastened() -> None:
    """It is done in the next round, and then at its pace."""
    rarely = Rarely(5)
    assert [rarely.due(0.0), rarely.due(0.1)] == [True, False]
    rarely.hasten()
    assert [n for n in range(7) if rarely.due(0.2 + n * 0.001)] == [0, 5]
