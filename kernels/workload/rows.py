"""Which request works in which row of the cache."""

from collections.abc import Callable, Iterator

from kernels.workload.generation import Generation


class Rows:
    """Rows in use: those that decode first, those that are prefilled behind them, no gap in between.

    `move` copies the first tokens of a row over another row.
    """

    def __init__(self, move: Callable[[int, int, int], None]) -> None:
        self._move = move
        self.decoding: list[Generation] = []
        self.prefilling: list[Generation] = []

    def __len__(self) -> int:
        return len(self.decoding) + len(self.prefilling)

    def __iter__(self) -> Iterator[Generation]:
        yield from self.decoding
        yield from self.prefilling

    def join(self, one: Generation) -> int:
        """Give a request the next row, to be prefilled; return it."""
        self.prefilling.append(one)
        return len(self) - 1

    def promote(self, count: int) -> None:
        """Let the first `count` of those that are prefilled decode from now on."""
        self.decoding += self.prefilling[:count]
        del self.prefilling[:count]

    def leave(self, one: Generation) -> None:
        """Free a request's row; the last one that decodes fills the gap, those that are prefilled keep their order."""
        if one in self.prefilling:
            gap = self.prefilling.index(one)
            del self.prefilling[gap]
            self._move_up(gap)
            return
        gap, mover = self.decoding.index(one), self.decoding.pop()
        if mover is not one:
            self._move(len(self.decoding), gap, mover.cached)
            self.decoding[gap] = mover
        self._move_up(0)

    def _move_up(self, first: int) -> None:
        """Bring those that are prefilled, from the `first` on, into the row before theirs."""
        for at, one in enumerate(self.prefilling[first:], len(self.decoding) + first):
            if one.cached:
                self._move(at + 1, at, one.cached)
