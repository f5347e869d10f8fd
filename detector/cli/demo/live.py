"""The live terminal view: phases, the P99 against its forecast band, and what the load gets."""

import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from detector.cli.demo import chart
from detector.cli.demo.observe import Observed
from detector.cli.demo.view import SIGMA, Phase

_CHART_ROWS = 10
_AXIS_COLUMNS = 9
_BAR_COLUMNS = 24
_BAND = "grey27"
_INK_STYLES: dict[chart.Ink, str] = {
    chart.Ink.EMPTY: "",
    chart.Ink.BAND: f"on {_BAND}",
    chart.Ink.LINE: "bright_cyan",
    chart.Ink.LINE_IN_BAND: f"bright_cyan on {_BAND}",
    chart.Ink.ALARM: "bold bright_red",
    chart.Ink.ALARM_IN_BAND: f"bold bright_red on {_BAND}",
}
_EXPECTED_S: dict[Phase, float] = {
    Phase.START: 6.0, Phase.WATCHING: 30.0, Phase.DETECTED: 1.0, Phase.ANALYSING: 10.0, Phase.REPORT: 1.0,
}  # fmt: skip


class LiveView:
    """Redraws on every observation; leaves nothing on the screen when closed."""

    def __init__(
        self, console: Console, title: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._title, self._clock = console, title, clock
        self._began_s = self._phase_began_s = clock()
        self._phase, self._text = Phase.START, ""
        self._seen = Observed()
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def phase(self, phase: Phase, text: str) -> None:
        """Move on to a phase."""
        self._phase, self._text, self._phase_began_s = phase, text, self._clock()
        self._redraw()

    def show(self, seen: Observed) -> None:
        """Draw the latest observations."""
        self._seen = seen
        self._redraw()

    def close(self) -> None:
        """Take the view off the screen."""
        self._live.stop()

    def _redraw(self) -> None:
        self._live.update(self.frame(), refresh=True)

    def frame(self) -> RenderableType:
        """Return the whole view as it stands."""
        body = Group(
            self._phases(),
            self._progress(),
            Text(),
            *self._chart(),
            Text(),
            self._numbers(),
            self._load(),
        )
        elapsed = f"{self._clock() - self._began_s:.0f} s"
        return Panel(body, title=Text(self._title), title_align="left", subtitle=Text(elapsed),
                     subtitle_align="right", border_style="grey50")  # fmt: skip

    def _phases(self) -> Text:
        line = Text()
        reached = list(Phase).index(self._phase)
        for index, phase in enumerate(Phase):
            mark, style = ("●", "green") if index < reached else ("○", "grey50")
            if index == reached:
                mark, style = "◉", "bold bright_cyan"
            line.append(f"{mark} {phase.value}   ", style=style)
        return line

    def _progress(self) -> Text:
        share = self._share()
        full = round(share * _BAR_COLUMNS)
        line = (
            Text()
            .append("━" * full, style="bright_cyan")
            .append("━" * (_BAR_COLUMNS - full), style="grey30")
        )
        return line.append(f"  {self._text}")

    def _share(self) -> float:
        if self._phase is Phase.BASELINE:
            return min(self._seen.status.baseline_progress, 1.0)
        return min((self._clock() - self._phase_began_s) / _EXPECTED_S[self._phase], 1.0)

    def _chart(self) -> list[Text]:
        columns = max(20, self._console.width - _AXIS_COLUMNS - 6)
        rows, scale = chart.draw(self._seen.windows, columns, _CHART_ROWS)
        middle_s = (scale.low_s * scale.high_s) ** 0.5
        labels = {0: scale.high_s, _CHART_ROWS // 2: middle_s, _CHART_ROWS - 1: scale.low_s}
        lines = []
        for index, cells in enumerate(rows):
            label = f"{labels[index] * 1e3:.0f} ms" if index in labels else ""
            line = Text(f"{label:>{_AXIS_COLUMNS - 2}} ", style="grey62").append(
                "│", style="grey39"
            )
            for character, ink in cells:
                line.append(character, style=_INK_STYLES[ink])
            lines.append(line)
        return lines

    def _numbers(self) -> Text:
        if not self._seen.windows:
            return Text("no window has closed yet", style="grey62")
        last = self._seen.windows[-1]
        residual = "bold bright_red" if last.out_of_band else "green"
        line = Text("P99 ").append(f"{last.p99_s * 1e3:.0f} ms", style="bold")
        line.append(f"   forecast {last.forecast_p99_s * 1e3:.0f} ms")
        line.append(f"   band {last.lower_s * 1e3:.0f}-{last.upper_s * 1e3:.0f} ms", style="grey62")
        line.append("   residual ").append(f"{last.residual_sigma:+.1f} {SIGMA}", style=residual)
        return line.append(f"   n {last.n} per window")

    def _load(self) -> Text:
        load = self._seen.load
        line = Text(f"{load.rate:.1f} requests/s   {load.ok} ok   ")
        line.append(f"{load.rejected} rejected (429)   {load.failed} failed", style="grey62")
        return line.append("   fault: hidden until the report", style="italic grey62")
