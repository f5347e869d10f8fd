"""What is done in one round of many: by count, and by the clock where rounds are far apart."""

from dataclasses import dataclass, field


@dataclass
class Rarely:
    """Due the first time, then every so many rounds, and at the latest after as many seconds.

    `skipped` rounds of the first cycle are taken as gone already, so that things of one kind take turns.
    """

    every: int
    skipped: int = 0
    _left: int = 0
    _until_s: float = field(default=float("-inf"))

    def due(self, now_s: float) -> bool:
        """Tell whether it is to be done in this round, which is at `now_s` on a monotonic clock."""
        self._left -= 1
        if self._left > 0 and now_s < self._until_s:
            return False
        self._left = self.every - self.skipped
        self._until_s = now_s + self._left
        self.skipped = 0
        return True

    def hasten(self) -> None:
        """Do it in the next round."""
        self._left = 0
