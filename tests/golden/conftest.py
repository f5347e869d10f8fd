"""Sample reports for the golden files, one for each thing that a report has to say."""

import math
import random
from collections.abc import Iterable

import msgspec
import pytest

from detector.model import (
    Cause,
    Change,
    Evidence,
    Incident,
    OperationShare,
    Report,
    SeriesKey,
    Signal,
    SlowRequest,
    Verdict,
    WindowVerdict,
)

ONSET = 1_796_094_764.0  # 2026-12-01 03:12:44 UTC
REVISION_A = "1f2e3d4c5b6a79880123456789abcdef01234567"
REVISION_B = "9a8b7c6d5e4f30211203948576aabbccddeeff00"


@pytest.fixture(scope="session")
def samples() -> dict[str, Report]:
    """Return the sample reports by name."""
    return {
        "throttled": throttled(),
        "bad-deploy": bad_deploy(),
        "demand": demand(),
        "inconclusive": inconclusive(),
    }


def windows(
    key: SeriesKey, seed: int, base_s: float, factor: float, per_window: int = 41
) -> list[WindowVerdict]:
    """Thirty quiet windows and seven that left the band, from a seed."""
    draw = random.Random(seed)
    found = []
    for index in range(-30, 7):
        out = index >= 0
        noise = math.exp(0.16 * (draw.random() + draw.random() - 1))
        n = per_window + draw.randrange(-5, 6)
        found.append(
            WindowVerdict(
                key=key,
                start_unix_s=ONSET + 2 * index,
                end_unix_s=ONSET + 2 * index + 2,
                n=n,
                failures=draw.randrange(3) if out else 0,
                p50_s=base_s * 0.45 * noise,
                p99_s=base_s * noise * (factor if out else 0.93),
                forecast_p99_s=base_s,
                lower_s=base_s * 0.64,
                upper_s=base_s * 1.55,
                exceedances=draw.randrange(9, 16) if out else draw.randrange(2),
                residual_sigma=4.4 + 2 * draw.random() if out else 2 * draw.random() - 1,
                out_of_band=out,
                learned=not out,
            )
        )
    return found


def incident(service: str, seed: int, base_s: float, factor: float) -> Incident:
    """Build an incident on first token and whole requests."""
    ttft = SeriesKey(service, "tiny-llm-4l", "", Signal.TTFT)
    e2e = SeriesKey(service, "tiny-llm-4l", f"{service}-0", Signal.E2E)
    return Incident(
        id="inc-20261201-031244-7f3a",
        service=service,
        model="tiny-llm-4l",
        onset_unix_s=ONSET,
        detected_unix_s=ONSET + 7.1,
        window_s=2.0,
        series=(ttft, e2e),
        windows=(
            *windows(ttft, seed, base_s, factor),
            *windows(e2e, seed + 1, base_s * 2, factor * 0.8),
        ),
        parameters={
            "sigma": 2.5,
            "windows_in_a_row": 3.0,
            "min_ratio": 1.5,
            "quantile": 0.99,
            "half_life_s": 600.0,
            "overdispersion": 0.012,
            "forecaster": "tail",
        },
        baseline_start_unix_s=ONSET - 60,
    )


def request(
    index: int, offset_s: float, revision: str, operations: dict[str, float]
) -> SlowRequest:
    """Build an example request whose operations leave 6 ms outside."""
    return SlowRequest(
        trace_id=f"{0x4BF92F3577B34DA6A3CE929D0E0E4736 + index * 0x1_0193_5EED_77A1:032x}",
        start_unix_s=ONSET + offset_s,
        duration_s=sum(operations.values()) + 0.006,
        revision=revision,
        operations=operations,
    )


def measured(request: SlowRequest, throttled: float) -> SlowRequest:
    """Give an example request a latency ledger of which 97 % is named."""
    rest = 0.97 - throttled
    shares = {
        "throttled": throttled,
        "cpu": rest * 0.8,
        "runqueue": rest * 0.2,
        "unexplained": 0.03,
    }
    waits = {name: share * request.duration_s for name, share in shares.items() if share}
    return msgspec.structs.replace(request, waits=waits)


def split(queue: float, prefill: float, decode: float, sql: float = 0.002) -> dict[str, float]:
    """Own time of a request's five operations, seconds."""
    parts = {"sql SELECT tenants": sql, "cache lookup": 0.0004}
    return parts | {"queue": queue, "prefill": prefill, "decode": decode}


def operations(rows: Iterable[tuple[str, float, float]]) -> tuple[OperationShare, ...]:
    """Build rows of own time before and since."""
    return tuple(
        OperationShare(name, before, since, since - before) for name, before, since in rows
    )


CGROUP = "/tailcause/ab12/chat"


def quota_cause(cgroup: str = CGROUP) -> Cause:
    """Build the true cause of the throttled sample."""
    return Cause(
        kind="cpu_throttling",
        target=cgroup,
        title=f"CPU quota throttles {cgroup}",
        verdict=Verdict.FAULT,
        share=0.782,
        share_low=0.70,
        share_high=0.85,
        score=0.91,
        evidence=(
            Evidence(
                "cgroup_throttling",
                "The cgroup was throttled while requests waited",
                f'increase(container_cpu_cfs_throttled_seconds_total{{id="{cgroup}"}}[16s])',
                9.4172,
                0.0,
                "s",
            ),
            Evidence(
                "cgroup_throttling",
                "Enforcement periods in which it ran out of quota",
                f'container_cpu_cfs_throttled_periods_total{{id="{cgroup}"}}',
                0.944,
                0.0,
                "1",
            ),
            Evidence(
                "cgroup_limits",
                "Its CPU limit",
                f'tailcause_cgroup_cpu_limit{{path="{cgroup}"}}',
                0.35,
                None,
                "{cpu}",
            ),
            Evidence(
                "spans",
                "Engine steps slowed with the same batch size and tokens",
                "spans: name = 'engine step'",
                4.31,
                1.0,
                "x",
            ),
        ),
        counter_evidence=(
            Evidence(
                "psi",
                "Host CPU pressure did not rise with it",
                "rate(tailcause_psi_time_seconds_total{resource='cpu'}[16s])",
                0.061,
                0.058,
                "1",
            ),
        ),
        next_steps=(
            f"Raise or remove the CPU limit of {cgroup}: it used 1.22 CPUs before the limit applied.",
            "Find who set the limit: kubectl get events, or the audit log of the node.",
        ),
    )


def decoy_deploy() -> Cause:
    """Build a harmless deploy that was weighed as a cause."""
    return Cause(
        kind="deploy",
        target=REVISION_B,
        title=f"Deploy of revision {REVISION_B[:7]}",
        verdict=Verdict.FAULT,
        share=0.05,
        share_low=0.0,
        share_high=0.11,
        score=0.08,
        evidence=(
            Evidence(
                "changes",
                f"Revision {REVISION_B[:7]} first seen 14 s before the onset",
                "resource: vcs.ref.head.revision",
            ),
        ),
        counter_evidence=(
            Evidence(
                "spans",
                "P99 of the new revision before the onset matched the old one's",
                f"spans: vcs.ref.head.revision = {REVISION_B[:7]}",
                0.209,
                0.212,
                "s",
            ),
        ),
    )


def bystander() -> Cause:
    """Build a throttled cgroup in which the service does not run; its name looks like markup."""
    return Cause(
        kind="cpu_throttling",
        target="/tailcause/ab12/batch-report [node-1 GPU-3]",
        title="CPU quota throttles a neighbour",
        verdict=Verdict.NONE,
        share=0.0,
        share_low=0.0,
        share_high=0.02,
        score=0.01,
        counter_evidence=(
            Evidence(
                "cgroup_throttling",
                "No span of the service ran in this cgroup",
                "resource: tailcause.cgroup.path",
                0.0,
                0.0,
                "{span}",
            ),
        ),
        missing=("Run-queue delay: no scheduler probe on this node",),
    )


def throttled() -> Report:
    """Build a report on CPU throttling, with a harmless deploy and a throttled bystander as decoys."""
    slow = (
        request(1, 9.31, REVISION_B, split(0.492, 0.301, 0.688)),
        request(2, 6.02, REVISION_B, split(0.401, 0.287, 0.612)),
        request(3, 11.47, REVISION_B, split(0.366, 0.204, 0.644)),
    )
    usual = (
        request(4, -21.5, REVISION_A, split(0.014, 0.041, 0.142)),
        request(5, -8.2, REVISION_B, split(0.011, 0.038, 0.151)),
        request(6, -5.9, REVISION_B, split(0.016, 0.044, 0.129)),
    )
    return Report(
        incident=incident("chat-api-7f", 3, 0.212, 4.9),
        verdict=Verdict.FAULT,
        headline=f"chat-api-7f is slow because its CPU quota throttles {CGROUP}",
        p99_before_s=0.212,
        p99_since_s=1.0388,
        signal=Signal.TTFT,
        requests_since=287,
        requests_slow=84,
        baseline_requests=1231,
        operations=operations(
            [
                ("decode", 0.1421, 0.6511),
                ("queue", 0.0138, 0.4202),
                ("prefill", 0.0412, 0.2641),
                ("sql SELECT tenants", 0.0021, 0.0035),
                ("cache lookup", 0.0004, 0.0004),
            ]
        ),
        causes=(quota_cause(), decoy_deploy(), bystander()),
        unexplained_share=0.168,
        changes=(
            Change(ONSET - 14.2, "chat-api-7f", "1.4.2", "1.4.3", REVISION_A, REVISION_B),
            Change(ONSET - 3610, "tenant-db", "16.3", "16.4", "", ""),
        ),
        slowest=tuple(measured(request, throttled=0.62) for request in slow),
        ordinary=tuple(measured(request, throttled=0.0) for request in usual),
        missing=("GPU signals: no NVIDIA driver on this host (not_supported)",),
        analysed_from_unix_s=ONSET,
        analysed_to_unix_s=ONSET + 16,
    )


def slow_revision() -> Cause:
    """Build the true cause of the bad deploy."""
    return Cause(
        kind="deploy",
        target=REVISION_B,
        title=f"Revision {REVISION_B[:7]} is slower in prefill",
        verdict=Verdict.FAULT,
        share=0.88,
        share_low=0.81,
        share_high=0.94,
        score=0.95,
        evidence=(
            Evidence(
                "spans",
                f"Prefill per input token, {REVISION_B[:7]} against {REVISION_A[:7]}",
                "spans: name = 'prefill' by vcs.ref.head.revision",
                0.00124,
                0.00031,
                "s",
            ),
            Evidence("spans", "Prompt cache hits", "spans: tailcause.cache.hit", 0.0, 0.412, "1"),
        ),
        counter_evidence=(),
        next_steps=(f"Roll back to {REVISION_A[:7]} (version 2.8.0).",),
    )


def bad_deploy() -> Report:
    """Build a report on a revision that is truly slower."""
    traffic = Cause(
        kind="demand",
        target="copilot-eu",
        title="More or longer requests",
        verdict=Verdict.DEMAND,
        share=0.03,
        share_low=0.0,
        share_high=0.07,
        score=0.04,
        counter_evidence=(
            Evidence(
                "traffic", "Arrivals", "spans: SERVER", value=20.4, baseline=20.1, unit="{req}/s"
            ),
            Evidence(
                "traffic",
                "Input tokens per request",
                "spans",
                value=611,
                baseline=604,
                unit="{token}",
            ),
        ),
    )
    return Report(
        incident=incident("copilot-eu", 11, 0.305, 3.4),
        verdict=Verdict.FAULT,
        headline=f"copilot-eu is slow since revision {REVISION_B[:7]}: prefill takes four times as long",
        p99_before_s=0.305,
        p99_since_s=1.037,
        signal=Signal.TTFT,
        requests_since=326,
        requests_slow=71,
        baseline_requests=1198,
        operations=operations(
            [
                ("prefill", 0.1123, 0.7071),
                ("queue", 0.0241, 0.1304),
                ("decode", 0.2012, 0.1966),
                ("sql SELECT tenants", 0.0021, 0.0022),
            ]
        ),
        causes=(slow_revision(), traffic),
        unexplained_share=0.09,
        changes=(Change(ONSET - 0.8, "copilot-eu", "2.8.0", "2.9.0", REVISION_A, REVISION_B),),
        slowest=(
            request(11, 5.1, REVISION_B, split(0.131, 0.802, 0.221)),
            request(12, 8.8, REVISION_B, split(0.122, 0.744, 0.204)),
        ),
        ordinary=(
            request(13, -9.0, REVISION_A, split(0.022, 0.118, 0.190)),
            request(14, -4.4, REVISION_A, split(0.018, 0.101, 0.208)),
        ),
        missing=(),
        analysed_from_unix_s=ONSET,
        analysed_to_unix_s=ONSET + 16,
    )


def demand() -> Report:
    """More traffic than the engine has room for."""
    surge = Cause(
        kind="demand",
        target="summarizer",
        title="Arrivals rose 2.6-fold",
        verdict=Verdict.DEMAND,
        share=0.83,
        share_low=0.74,
        share_high=0.90,
        score=0.88,
        evidence=(
            Evidence(
                "traffic", "Arrivals", "spans: SERVER", value=52.3, baseline=20.2, unit="{req}/s"
            ),
            Evidence(
                "traffic", "Tokens in flight", "spans", value=9120, baseline=2480, unit="{token}"
            ),
            Evidence(
                "spans",
                "Engine step at the same batch size",
                "spans: name = 'engine step'",
                value=0.0213,
                baseline=0.0209,
                unit="s",
            ),
        ),
        next_steps=(
            "Add a replica: 52 requests/s need about 2.6 times the present capacity.",
            "Or lower max_queue, so that the excess is refused with 429 before it waits.",
        ),
    )
    return Report(
        incident=incident("summarizer", 23, 0.241, 5.6),
        verdict=Verdict.DEMAND,
        headline="summarizer gets 2.6 times its usual traffic and queues",
        p99_before_s=0.241,
        p99_since_s=1.351,
        signal=Signal.TTFT,
        requests_since=838,
        requests_slow=402,
        baseline_requests=1211,
        operations=operations(
            [("queue", 0.0162, 1.0411), ("decode", 0.1733, 0.2604), ("prefill", 0.0466, 0.0512)]
        ),
        causes=(surge,),
        unexplained_share=0.17,
        changes=(),
        slowest=(request(21, 12.3, REVISION_A, split(1.211, 0.049, 0.266)),),
        ordinary=(request(22, -6.6, REVISION_A, split(0.015, 0.047, 0.176)),),
        missing=(),
        analysed_from_unix_s=ONSET,
        analysed_to_unix_s=ONSET + 16,
    )


def inconclusive() -> Report:
    """Too little data, and no agent on the node."""
    candidate = Cause(
        kind="cpu_throttling",
        target="",
        title="CPU throttling",
        verdict=Verdict.INCONCLUSIVE,
        share=0.31,
        share_low=0.0,
        share_high=0.66,
        score=0.3,
        evidence=(
            Evidence(
                "spans",
                "Engine steps slowed with the same batch size",
                "spans: name = 'engine step'",
                2.1,
                None,
                "x",
            ),
            Evidence("cgroup_throttling", "Throttled time", "", None, None, "s"),
        ),
        missing=("CPU time and throttling of the server's cgroup: no agent reports for this host",),
        next_steps=("Start tailcause-agent on the host of ranker-2b-0.",),
    )
    return Report(
        incident=incident("ranker-2b", 31, 0.18, 2.4),
        verdict=Verdict.INCONCLUSIVE,
        headline="ranker-2b is slow; no cause stands out",
        p99_before_s=math.nan,
        p99_since_s=0.431,
        signal=Signal.TTFT,
        requests_since=57,
        requests_slow=9,
        baseline_requests=402,
        operations=(),
        causes=(candidate,),
        unexplained_share=0.69,
        changes=(),
        slowest=(),
        ordinary=(),
        missing=(
            "Spans below the requests: the service sends only its request span",
            "118 spans were dropped at the intake while the incident ran",
        ),
        analysed_from_unix_s=ONSET,
        analysed_to_unix_s=ONSET + 16,
    )
