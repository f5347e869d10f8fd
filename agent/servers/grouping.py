"""Which series of a server's page are which of ours."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agent.servers.cumulative import Member
from agent.servers.page import Histogram, LabelBook, Page, histograms
from agent.servers.table import BUCKET, CREATED, TOTAL, Row, Server
from agent.telemetry.keys import GEN_AI_MODEL, SERVER_ENGINE
from agent.telemetry.metric import Kind

MAX_MODELS = 16
MAX_SERIES = 1000
"""Of ours, for one server."""
_MAX_TEXT = 256
_FIRST_RANK = "0"

Key = tuple[str, tuple[tuple[str, str], ...]]
"""One series of ours: its metric, and what it has beside the attributes of its server."""


@dataclass
class Group:
    """The server's series that add up to one of ours; `created_s` is when each began, 0 if that is unknown."""

    row: Row
    values: dict[Member, float] = field(default_factory=dict)
    histograms: dict[Member, Histogram] = field(default_factory=dict)
    created_s: dict[Member, float] = field(default_factory=dict)


class Grouping:
    """Sorts page after page of one server; what goes beyond the bounds is counted in `lost`."""

    def __init__(self, server: Server, lost: Counter[str]) -> None:
        self._server = server
        self._lost = lost
        self._book = LabelBook()
        self._models: frozenset[str] = frozenset()

    def groups(self, page: Page) -> dict[Key, Group]:
        """Return the groups of a page; models that were there before go first when there are too many."""
        groups: dict[Key, Group] = {}
        models: set[str] = set()
        for row in self._server.rows:
            for member, one, created_s in self._members(row, page):
                key = self._key(row, dict(member[1]), models)
                group = self._group(groups, key, row) if key is not None else None
                if group is None:
                    continue
                if isinstance(one, Histogram):
                    group.histograms[member] = one
                else:
                    group.values[member] = one
                    group.created_s[member] = created_s
        self._models = frozenset(models)
        return groups

    def _members(self, row: Row, page: Page) -> Iterator[tuple[Member, float | Histogram, float]]:
        """Yield the series of the row's first name that is on the page."""
        if row.kind is Kind.HISTOGRAM:
            name = _present(page, row.names, BUCKET)
            if name:
                for labels, histogram in histograms(page, name, self._book).items():
                    yield (name, labels), histogram, histogram.created_s
            return
        name = _present(page, row.candidates)
        created = page.series.get(f"{name.removesuffix(TOTAL)}{CREATED}", {})
        for text, value in page.series.get(name, {}).items():
            yield (name, self._book[text][0]), value, created.get(text, 0.0)

    def _key(self, row: Row, labels: Mapping[str, str], models: set[str]) -> Key | None:
        """Return which of ours a series is, None where it does not count."""
        server = self._server
        if any(labels.get(label) != value for label, value in row.where):
            return None
        if any(labels.get(label, _FIRST_RANK) != _FIRST_RANK for label in server.rank_labels):
            return None
        model = next((labels[one] for one in server.model_labels if labels.get(one)), "")
        if model and not self._admits(model, models):
            self._lost["too_many_models"] += 1
            return None
        named = (
            (GEN_AI_MODEL, model),
            (SERVER_ENGINE, labels.get(server.engine_label, "")),
            *row.attributes,
            *((key, labels.get(label, "")) for label, key in row.labels),
        )
        return row.metric, tuple({key: text[:_MAX_TEXT] for key, text in named if text}.items())

    def _admits(self, model: str, models: set[str]) -> bool:
        if model not in self._models and len(models | self._models) >= MAX_MODELS:
            return model in models
        models.add(model)
        return True

    def _group(self, groups: dict[Key, Group], key: Key, row: Row) -> Group | None:
        group = groups.get(key)
        if group is None:
            if len(groups) >= MAX_SERIES:
                self._lost["too_many_series"] += 1
                return None
            group = groups[key] = Group(row)
        return group


def _present(page: Page, names: tuple[str, ...], part: str = "") -> str:
    return next((name for name in names if page.series.get(f"{name}{part}")), "")
