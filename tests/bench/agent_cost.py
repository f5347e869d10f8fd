"""What the agent uses of a CPU: as deployed, scraped beside the node exporter, with spans going through."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from tests.bench.agent_process import FailedError, Running, series
from tests.bench.agent_spans import Load
from tests.bench.paired import Estimate, estimate, of_values

SCRAPE_S = 1.0


@dataclass(frozen=True)
class Slice:
    """A process's use over an interval."""

    took_s: float
    cpu_s: float

    @property
    def percent(self) -> float:
        """Of a core."""
        return 100 * self.cpu_s / self.took_s


def slices(running: Running, count: int, length_s: float) -> list[Slice]:
    """Measure a process for some intervals in a row."""
    found = []
    for _ in range(count):
        began_s, used_s = time.monotonic(), running.cpu_s()
        time.sleep(length_s)
        found.append(Slice(time.monotonic() - began_s, running.cpu_s() - used_s))
    return found


@dataclass(frozen=True)
class Scraped:
    """One interval in which two processes were scraped every second: CPU and series of both."""

    ours: Slice
    peer: Slice
    our_series: int
    peer_series: int

    @property
    def ours_us(self) -> float:
        """Our CPU time per second and series."""
        return 1e6 * self.ours.cpu_s / self.ours.took_s / self.our_series

    @property
    def peer_us(self) -> float:
        """The peer's."""
        return 1e6 * self.peer.cpu_s / self.peer.took_s / self.peer_series


class Scraper:
    """Scrapes a process every second, on a thread of its own, and keeps the last page's number of series."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.series = 0
        self.failure: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        due_s = time.monotonic()
        while not self._ended.wait(max(0.0, due_s - time.monotonic())):
            try:
                self.series = series(self._running.scrape())
            except (OSError, FailedError) as exc:
                self.failure = exc
                return
            due_s += SCRAPE_S


def scraped(ours: Running, peer: Running, count: int, length_s: float) -> list[Scraped]:
    """Scrape both for some intervals in a row; each interval is one pair."""
    found = []
    with Scraper(ours) as our_page, Scraper(peer) as peer_page:
        time.sleep(2 * SCRAPE_S)
        for _ in range(count):
            began_s, our_s, peer_s = time.monotonic(), ours.cpu_s(), peer.cpu_s()
            time.sleep(length_s)
            took_s = time.monotonic() - began_s
            found.append(
                Scraped(
                    Slice(took_s, ours.cpu_s() - our_s),
                    Slice(took_s, peer.cpu_s() - peer_s),
                    our_page.series,
                    peer_page.series,
                )
            )
        for one in (our_page, peer_page):
            if one.failure is not None:
                raise FailedError(f"a scrape failed: {one.failure}")
    return found


def over_peer(rounds: Sequence[Scraped]) -> Estimate:
    """Return our CPU time per series over the peer's."""
    return estimate(
        rounds, lambda some: median(r.ours_us for r in some) / median(r.peer_us for r in some)
    )


def median_of(rounds: Sequence[Scraped], value: Callable[[Scraped], float]) -> Estimate:
    """Return the median of a figure of the rounds."""
    return of_values([value(one) for one in rounds])


def spans_percent(running: Running, load: Load, pairs: int, length_s: float) -> list[float]:
    """Return how much more of a core the agent uses while spans go through, in turns with none."""
    found = []
    for _ in range(pairs):
        load.go(on=False)
        time.sleep(1.0)  # what is on its way is through
        [without] = slices(running, 1, length_s)
        load.go(on=True)
        time.sleep(1.0)
        [with_spans] = slices(running, 1, length_s)
        found.append(with_spans.percent - without.percent)
    load.go(on=False)
    if load.failure is not None:
        raise FailedError(f"spans were refused: {load.failure}")
    return found
