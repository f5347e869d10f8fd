"""The page at `/`: P99 with its band per service, and the incidents; plain HTML, no scripts."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from detector.incidents.database import Summary
from detector.model import SeriesKey, WindowVerdict

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 150, 48, 18
_REFRESH_S = 5
_MOST_PICTURES = 24

_STYLE = """
:root { color-scheme: light dark; --line: #1f6feb; --band: #1f6feb33; --bad: #d4572a; --soft: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; margin: 0; } h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--soft); vertical-align: top; }
.soft { opacity: .7; } figure { margin: 1rem 0; } svg { width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; opacity: .7; }
.band { fill: var(--band); } .line { fill: none; stroke: var(--line); stroke-width: 1.5; }
.forecast { fill: none; stroke: var(--line); stroke-dasharray: 3 3; opacity: .7; } .bad { fill: var(--bad); }
"""


def render_page(
    status: Mapping[str, object],
    series: Sequence[tuple[SeriesKey, Sequence[WindowVerdict]]],
    incidents: Sequence[Summary],
) -> str:
    """Return the whole page."""
    whole = [(key, windows) for key, windows in series if not key.replica][:_MOST_PICTURES]
    pictures = "".join(_figure(key, windows) for key, windows in whole)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{_REFRESH_S}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>tailcause</title><style>{_STYLE}</style></head><body>"
        f"<h1>tailcause</h1>{_status_line(status)}"
        f"<h2>Incidents</h2>{_incident_table(incidents)}"
        f"<h2>P99 and its forecast band</h2>{pictures or '<p>No requests seen yet.</p>'}"
        "</body></html>"
    )


def _status_line(status: Mapping[str, object]) -> str:
    progress = status["baseline_progress"]
    percent = f"{100 * progress:.0f} %" if isinstance(progress, float) else "unknown"
    dropped = status["dropped"]
    lost = sum(dropped.values()) if isinstance(dropped, dict) else 0
    return (
        f'<p class="soft">{status["spans"]} spans, {status["points"]} points, '
        f"{status['windows']} windows, baseline {percent}, {lost} dropped</p>"
    )


def _incident_table(incidents: Sequence[Summary]) -> str:
    if not incidents:
        return "<p>None.</p>"
    rows = "".join(_incident_row(incident) for incident in incidents)
    return (
        "<table><thead><tr><th>Since (UTC)</th><th>Service</th><th>Status</th><th>What</th></tr>"
        f"</thead><tbody>{rows}</tbody></table>"
    )


def _incident_row(incident: Summary) -> str:
    moment = datetime.fromtimestamp(incident.onset_unix_s, tz=UTC)
    text = escape(incident.headline or incident.error or "analysing")
    if incident.verdict:
        text = f'<a href="/api/v1/incidents/{escape(incident.id)}/report.html">{text}</a>'
    return (
        f'<tr><td><time datetime="{moment.isoformat()}">{moment:%Y-%m-%d %H:%M:%S}</time></td>'
        f"<td>{escape(incident.service)}<br>{escape(incident.model)}</td>"
        f"<td>{escape(incident.status.value)}</td><td>{text}</td></tr>"
    )


def _figure(key: SeriesKey, windows: Sequence[WindowVerdict]) -> str:
    name = escape(f"{key.service} · {key.model} · {key.signal.value.replace('_', ' ')}")
    seen = [window for window in windows if window.n > 0]
    if len(seen) < 2:
        return f"<figure><figcaption>{name}: too few windows yet</figcaption></figure>"
    last = seen[-1]
    caption = f"{name}: P99 {_ms(last.p99_s)}, forecast {_ms(last.forecast_p99_s)}, n={last.n}"
    return f"<figure><figcaption>{caption}</figcaption>{_picture(name, seen)}</figure>"


def _picture(name: str, windows: Sequence[WindowVerdict]) -> str:
    top = 1.1 * max(max(window.p99_s, window.upper_s) for window in windows)
    start, end = windows[0].start_unix_s, windows[-1].end_unix_s

    def at(time_unix_s: float, value_s: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT) * (time_unix_s - start) / (end - start)
        y = (_HEIGHT - _BOTTOM) * (1 - value_s / top) if top > 0 else _HEIGHT - _BOTTOM
        return f"{x:.1f},{y:.1f}"

    judged = [window for window in windows if window.judged]
    upper = [at(window.end_unix_s, window.upper_s) for window in judged]
    lower = [at(window.end_unix_s, window.lower_s) for window in reversed(judged)]
    forecast = " ".join(at(window.end_unix_s, window.forecast_p99_s) for window in judged)
    line = " ".join(at(window.end_unix_s, window.p99_s) for window in windows)
    marks = "".join(
        '<circle class="bad" r="3" cx="{}" cy="{}"/>'.format(
            *at(window.end_unix_s, window.p99_s).split(",")
        )
        for window in windows
        if window.out_of_band
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{name}: P99 over time">'
        f'<polygon class="band" points="{" ".join(upper + lower)}"/>'
        f'<polyline class="forecast" points="{forecast}"/>'
        f'<polyline class="line" points="{line}"/>{marks}'
        f'<text x="0" y="12">{_ms(top)}</text><text x="0" y="{_HEIGHT - _BOTTOM}">0</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 3}">{end - start:.0f} s ago</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 3}" text-anchor="end">now</text></svg>'
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds > 0 else "unknown"
