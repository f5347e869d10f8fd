"""What a server's page says, in our names and units."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from agent.servers.cumulative import Cumulative, Member, Reading, Values
from agent.servers.grouping import MAX_SERIES, Group, Grouping, Key
from agent.servers.page import MAX_VALUE, read
from agent.servers.slow import LATENCY, Counts, SlowShares
from agent.servers.table import PROCESS_START, Server
from agent.telemetry.keys import GEN_AI_OPERATION, SERVER_LATENCY, SERVER_THRESHOLD, SOURCE
from agent.telemetry.metric import Kind
from agent.telemetry.model import Attributes, AttributeValue, ExplicitBuckets, Sample

_SHARE = "tailcause.server.slow_share"
_GEN_AI = "gen_ai."
_OF_GEN_AI = {GEN_AI_OPERATION: "unknown", SOURCE: "scrape"}
"""A page does not tell chats from embeddings; spans of the same requests have another source."""


class Normaliser:
    """Reads page after page of one server, and counts in `lost` what was not taken in, by reason."""

    def __init__(
        self,
        server: Server,
        identity: Attributes,
        lost: Counter[str],
        thresholds_s: Sequence[float] = (),
    ) -> None:
        self._lost = lost
        self._server = server
        self._identity = identity
        self._grouping = Grouping(server, lost)
        self._cumulative: dict[Key, Cumulative] = {}
        self._shares = SlowShares(thresholds_s)
        self._before_unix_ns = 0

    def samples(self, text: str, now_unix_ns: int) -> list[Sample]:
        """Return what a page says; nothing where no series of the server's table is on it."""
        page = read(text, self._server.wanted)
        groups = self._grouping.groups(page)
        began_s = page.single(PROCESS_START) or 0.0
        found = [
            sample
            for key, group in groups.items()
            for sample in self._told(key, group, began_s, now_unix_ns)
        ]
        self._lost.update(page.lost)
        self._before_unix_ns = now_unix_ns
        if len(self._cumulative) > 2 * MAX_SERIES:
            self._forget(groups)
        return found

    def _told(self, key: Key, group: Group, began_s: float, now: int) -> Iterator[Sample]:
        if group.row.kind is Kind.HISTOGRAM:
            yield from self._histogram(key, group, began_s, now)
            return
        factor = group.row.factor
        values = {m: v * factor for m, v in group.values.items() if 0 <= v < MAX_VALUE}
        self._lose("out_of_range", len(group.values) - len(values))
        if not values:
            return
        if group.row.kind is Kind.COUNTER:
            readings = {
                member: Reading((value,), _past(group.created_s[member] or began_s, now), 1)
                for member, value in values.items()
            }
            (value,), start = self._since(key, readings)
            yield self._sample(key, value, now, start)
        else:  # of several engines' shares the largest counts, of their requests the sum
            is_share = group.row.kind is Kind.GAUGE
            yield self._sample(key, max(values.values()) if is_share else sum(values.values()), now)

    def _histogram(self, key: Key, group: Group, began_s: float, now: int) -> Iterator[Sample]:
        bounds = next(iter(group.histograms.values())).bounds
        readings = {
            member: Reading(
                (*one.counts, one.sum), _past(one.created_s or began_s, now), len(one.counts)
            )
            for member, one in group.histograms.items()
            if one.bounds == bounds
        }
        self._lose("other_bounds", len(group.histograms) - len(readings))
        (*counts, total), start = self._since(key, readings)
        factor = group.row.factor
        bounds = tuple(bound * factor for bound in bounds)
        single = (counts[0], *(above - below for below, above in pairwise(counts)))
        explicit = ExplicitBuckets(bounds, tuple(map(round, single)), total * factor)
        yield self._sample(key, counts[-1], now, start, explicit)
        if key[0] in LATENCY:
            yield from self._slow(key, Counts(now, start, bounds, tuple(counts)))

    def _slow(self, key: Key, counts: Counts) -> Iterator[Sample]:
        metric, attributes = key
        for threshold, share in self._shares.add(metric, key, counts):
            named: dict[str, AttributeValue] = {
                **self._identity,
                **dict(attributes),
                SERVER_LATENCY: LATENCY[metric],
                SERVER_THRESHOLD: threshold,
            }
            yield Sample(_SHARE, share, counts.time_unix_ns, named)

    def _since(self, key: Key, readings: dict[Member, Reading]) -> tuple[Values, int]:
        cumulative = self._cumulative.setdefault(key, Cumulative())
        return cumulative.add(readings, self._before_unix_ns), cumulative.start_unix_ns

    def _sample(
        self,
        key: Key,
        value: float,
        now: int,
        start: int = 0,
        explicit: ExplicitBuckets | None = None,
    ) -> Sample:
        metric, attributes = key
        named = {**self._identity, **dict(attributes)}
        if metric.startswith(_GEN_AI):
            named |= _OF_GEN_AI
        return Sample(metric, value, now, named, start, explicit=explicit)

    def _lose(self, reason: str, count: int) -> None:
        if count:
            self._lost[reason] += count

    def _forget(self, kept: Collection[Key]) -> None:
        """Let go of series that are not on the page any more: reasons and models come and go."""
        self._cumulative = {key: one for key, one in self._cumulative.items() if key in kept}
        self._shares.forget(kept)


def _past(created_s: float, now_unix_ns: int) -> float:
    """Return a time if it is one in the past, else 0: unknown."""
    return created_s if 0 < created_s <= now_unix_ns / 1e9 else 0.0
