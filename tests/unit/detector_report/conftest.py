"""A small report that tests change by a field or two."""

import pytest

from detector.model import (
    Cause,
    Evidence,
    Incident,
    Report,
    SeriesKey,
    Signal,
    Verdict,
    WindowVerdict,
)

ONSET = 1_796_094_764.0  # 2026-12-01 03:12:44 UTC
KEY = SeriesKey("chat", "tiny", "", Signal.TTFT)


def _window(index: int) -> WindowVerdict:
    out = index >= 0
    return WindowVerdict(
        key=KEY,
        start_unix_s=ONSET + 2 * index,
        end_unix_s=ONSET + 2 * index + 2,
        n=40,
        failures=0,
        p50_s=0.1,
        p99_s=0.9 if out else 0.2,
        forecast_p99_s=0.2,
        lower_s=0.13,
        upper_s=0.31,
        exceedances=12 if out else 0,
        residual_sigma=5.0 if out else 0.1,
        out_of_band=out,
        learned=not out,
    )


@pytest.fixture
def report() -> Report:
    """Return a fault with one cause."""
    cause = Cause(
        kind="cpu_throttling",
        target="/tailcause/chat",
        title="CPU quota",
        verdict=Verdict.FAULT,
        share=0.62,
        share_low=0.55,
        share_high=0.70,
        score=0.9,
        evidence=(
            Evidence("cgroup_throttling", "Throttled", "q", value=9.4, baseline=0.0, unit="s"),
        ),
        next_steps=("Raise the limit",),
    )
    incident = Incident(
        id="inc-1",
        service="chat",
        model="tiny",
        onset_unix_s=ONSET,
        detected_unix_s=ONSET + 7,
        window_s=2.0,
        series=(KEY,),
        windows=tuple(_window(index) for index in range(-4, 3)),
        parameters={"sigma": 2.5},
        baseline_start_unix_s=ONSET - 60,
    )
    return Report(
        incident=incident,
        verdict=Verdict.FAULT,
        headline="chat is slow",
        p99_before_s=0.2,
        p99_since_s=0.9,
        signal=Signal.TTFT,
        requests_since=120,
        requests_slow=36,
        baseline_requests=400,
        operations=(),
        causes=(cause,),
        unexplained_share=0.38,
        changes=(),
        slowest=(),
        ordinary=(),
        missing=(),
        analysed_from_unix_s=ONSET,
        analysed_to_unix_s=ONSET + 16,
    )
