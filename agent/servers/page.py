"""The text of a metrics page as series, of the wanted names alone.

Source: Prometheus, "Exposition formats" (text format 0.0.4); OpenMetrics 1.0 for exemplars, which are passed over.
`prometheus_client`'s own parser makes an object of every line, wanted or not, and takes over ten times as long.
"""

import io
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

MAX_SERIES = 20_000
"""Of the wanted names, one bucket being one; a vLLM page has about 400 for each model and engine."""
MAX_COUNT = 2.0**53
"""Up to here a float tells every count from the next; OTLP's counts end at 2^64."""
MAX_VALUE = 1e18
"""No server's counter gets there: what does is not a value, and sums of a few of these are finite."""
_MAX_KNOWN = 40_000
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ODD = re.compile(r'\{((?:\s*[a-zA-Z_]\w*="(?:[^"\\]|\\.)*"\s*,?)*)\s*\}\s*(\S+)')
_ESCAPE = re.compile(r"\\(.)")
_LE = "le"

Labels = tuple[tuple[str, str], ...]


@dataclass
class Page:
    """The values of each wanted name, by the text of its labels; what was not taken in, by reason."""

    series: dict[str, dict[str, float]]
    lost: Counter[str] = field(default_factory=Counter)

    def single(self, name: str) -> float | None:
        """Return the value of a name that has no labels."""
        return self.series.get(name, {}).get("")


def read(text: str, wanted: Collection[str]) -> Page:
    """Return the wanted series; a line that cannot be understood is counted and leaves the others."""
    page = Page({name: {} for name in wanted})
    series, taken = page.series, 0
    for line in io.StringIO(text):
        name, brace, rest = line.partition("{")
        if not brace:
            name, _, rest = line.partition(" ")
        values = series.get(name)
        if values is None:
            continue
        taken += 1
        if taken > MAX_SERIES:
            page.lost["too_many_series"] += 1
            continue
        _take(page, values, line if brace else "", rest)
    return page


def _take(page: Page, values: dict[str, float], line: str, rest: str) -> None:
    """Add the value of one line; `line` is empty where it has no labels."""
    labels = ""
    if line:
        labels, _, rest = rest.rpartition("}")
        if "#" in labels or "#" in rest or not labels.endswith('"'):
            match = _ODD.match(line, line.index("{"))
            labels, rest = match.groups() if match else ("", "")
    try:
        value = float(rest.split(None, 1)[0])
    except (ValueError, IndexError):
        page.lost["malformed_line"] += 1
        return
    if labels in values:
        page.lost["duplicate_series"] += 1
    elif math.isnan(value):
        page.lost["not_a_number"] += 1
    else:
        values[labels] = value


class LabelBook:
    """What texts of labels say; they are the same at every reading, so each is taken apart once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Labels, float | None]] = {}

    def __getitem__(self, text: str) -> tuple[Labels, float | None]:
        """Return the labels without `le`, in order, and the value of `le`, None without one."""
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[text] = _parsed(text)
        return known


def _parsed(text: str) -> tuple[Labels, float | None]:
    pairs = {key: _unescaped(value) for key, value in _LABEL.findall(text)}
    bound = pairs.pop(_LE, None)
    return tuple(sorted(pairs.items())), _number(bound)


def _number(bound: str | None) -> float | None:
    try:
        return None if bound is None else float(bound)
    except ValueError:
        return math.nan


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], value)


@dataclass(slots=True)
class Histogram:
    """One histogram: cumulative counts by bound, the last of all values, and when it began (0: unknown)."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float
    created_s: float


def histograms(page: Page, name: str, book: LabelBook) -> dict[Labels, Histogram]:
    """Return the histograms of a family; one that contradicts itself is counted and left out."""
    counts = _by_labels(page.series[f"{name}_count"], book)
    sums = _by_labels(page.series[f"{name}_sum"], book)
    created = _by_labels(page.series[f"{name}_created"], book)
    found: dict[Labels, Histogram] = {}
    for labels, buckets in _buckets(page.series[f"{name}_bucket"], book).items():
        total = buckets.pop(math.inf, None)
        whole = counts.get(labels, total) if total is None else total
        histogram = _histogram(buckets, whole, sums.get(labels), created.get(labels, 0.0))
        if histogram is None:
            page.lost["malformed_histogram"] += 1
        else:
            found[labels] = histogram
    return found


def _by_labels(values: Mapping[str, float], book: LabelBook) -> dict[Labels, float]:
    return {book[text][0]: value for text, value in values.items()}


def _buckets(values: Mapping[str, float], book: LabelBook) -> dict[Labels, dict[float, float]]:
    found: dict[Labels, dict[float, float]] = {}
    for text, value in values.items():
        labels, bound = book[text]
        buckets = found.get(labels)
        if buckets is None:
            buckets = found[labels] = {}
        buckets[math.nan if bound is None else bound] = value
    return found


def _histogram(
    buckets: dict[float, float], total: float | None, values_sum: float | None, created_s: float
) -> Histogram | None:
    if total is None or values_sum is None or not buckets:
        return None
    bounds = tuple(sorted(buckets))
    counts = (*(buckets[bound] for bound in bounds), total)
    rising = all(one <= other for one, other in pairwise(counts))
    finite = all(map(math.isfinite, bounds)) and abs(values_sum) < MAX_VALUE
    if not rising or not finite or not 0 <= counts[0] <= total < MAX_COUNT:
        return None
    if not all(map(float.is_integer, counts)):
        return None
    return Histogram(bounds, counts, values_sum, created_s)
