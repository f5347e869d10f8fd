"""The windows of the series that the report is about."""

from dataclasses import dataclass

from detector.model import Report, SeriesKey, WindowVerdict
from detector.report import text, units

_TABLE_ROWS = 12
_LEAD_IN = 3


@dataclass(frozen=True)
class Windows:
    """One series in order of time; `table` is the part around and after the onset."""

    name: str
    all: tuple[WindowVerdict, ...]
    table: tuple[WindowVerdict, ...]
    onset_unix_s: float
    band: str
    others: tuple[str, ...]

    @property
    def peak_s(self) -> float | None:
        """The highest observed P99; None where no window has one."""
        return max((w.p99_s for w in self.all if units.known(w.p99_s)), default=None)


def of(report: Report) -> Windows:
    """Pick the series that best fits the report's signal and order its windows."""
    incident = report.incident
    keys = sorted({window.key for window in incident.windows})
    if not keys:
        return Windows(units.UNKNOWN, (), (), incident.onset_unix_s, "band unknown", ())
    main = max(keys, key=lambda key: _fitness(key, report))
    ordered = sorted((w for w in incident.windows if w.key == main), key=lambda w: w.start_unix_s)
    return Windows(
        name=series_name(main),
        all=tuple(ordered),
        table=tuple(_around_onset(ordered, incident.onset_unix_s)),
        onset_unix_s=incident.onset_unix_s,
        band=_band_at_onset(ordered, incident.onset_unix_s),
        others=tuple(series_name(key) for key in sorted(incident.series) if key != main),
    )


def series_name(key: SeriesKey) -> str:
    """Name a series: `time to first token, all replicas`."""
    replica = f"replica {units.clean(key.replica)}" if key.replica else "all replicas"
    return f"{text.SIGNALS[key.signal]}, {replica}"


def _fitness(key: SeriesKey, report: Report) -> tuple[bool, bool, bool, int]:
    incident = report.incident
    count = sum(window.key == key for window in incident.windows)
    return key.signal == report.signal, key in incident.series, key.replica == "", count


def _around_onset(ordered: list[WindowVerdict], onset_unix_s: float) -> list[WindowVerdict]:
    before = [window for window in ordered if window.start_unix_s < onset_unix_s]
    since = [window for window in ordered if window.start_unix_s >= onset_unix_s]
    return (before[-_LEAD_IN:] + since)[:_TABLE_ROWS]


def _band_at_onset(ordered: list[WindowVerdict], onset_unix_s: float) -> str:
    """Give the band of the window that left it, or of the last one before."""
    upto = [window for window in ordered if window.start_unix_s <= onset_unix_s]
    return text.band(upto[-1]) if upto else "band unknown"
