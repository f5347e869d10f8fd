"""Keeps stop sequences out of the text: tokens that may be the beginning of one wait until it is known."""

from collections.abc import Sequence

from kernels.workload.generation import Stops, stopped_by


class StopFilter:
    """Passes tokens on as soon as no stop sequence can begin with them."""

    def __init__(self, stops: Stops) -> None:
        self._stops = stops
        self._held: list[int] = []

    def feed(self, token: int, *, last: bool) -> list[int]:
        """Take a token; return those that belong to the text. With the `last` one a stop sequence falls away."""
        if not self._stops:
            return [token]
        self._held.append(token)
        if stop := stopped_by(self._held, self._stops):
            del self._held[-len(stop) :]
            last = True
        wait = 0 if last else max(_overlap(self._held, stop) for stop in self._stops)
        passed = self._held[: len(self._held) - wait]
        del self._held[: len(passed)]
        return passed


def without_stop(tokens: Sequence[int], stops: Stops) -> list[int]:
    """Tokens of a whole completion without the stop sequence that ended it."""
    text = list(tokens)
    stop = stopped_by(text, stops) if text else ()
    return text[: len(text) - len(stop)]


def _overlap(held: list[int], stop: tuple[int, ...]) -> int:
    """Length of the longest end of what is held that a stop sequence begins with."""
    for length in range(min(len(held), len(stop) - 1), 0, -1):
        if tuple(held[-length:]) == stop[:length]:
            return length
    return 0
