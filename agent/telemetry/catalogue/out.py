"""Metrics of the way out and of batches that come twice: spool, bound on series, kernel log."""

from agent.telemetry.keys import EVENT_NAME, METRIC, OTLP_SIGNAL, PIPE, REASON
from agent.telemetry.metric import Kind, Metric

METRICS: tuple[Metric, ...] = (
    Metric(
        "tailcause.pipe.retries",
        "{attempt}",
        Kind.COUNTER,
        "Attempts after which a pipe tries again, because the back end is away or asks for it.",
        (PIPE,),
    ),
    Metric(
        "tailcause.spool.size",
        "By",
        Kind.UP_DOWN,
        "Disk taken by what waits for a back end that is away.",
        (PIPE,),
    ),
    Metric(
        "tailcause.spool.items",
        "{item}",
        Kind.UP_DOWN,
        "Items that wait on disk.",
        (PIPE, OTLP_SIGNAL),
    ),
    Metric(
        "tailcause.spool.available",
        "1",
        Kind.GAUGE,
        "1 where what cannot be sent can wait on disk, 0 where it waits in memory alone.",
        (PIPE,),
    ),
    Metric(
        "tailcause.spool.write.failures",
        "{batch}",
        Kind.COUNTER,
        "Batches that could not be put on disk, by the error's name; torn: cut off by a crash.",
        (PIPE, REASON),
    ),
    Metric(
        "tailcause.otlp.duplicates",
        "{request}",
        Kind.COUNTER,
        "Requests that came again under the batch id of one before, and were answered as that one was.",
    ),
    Metric(
        "tailcause.series.folded",
        "{series}",
        Kind.GAUGE,
        "Series of a metric above its bound, which are one series with otel.metric.overflow.",
        (METRIC,),
    ),
    Metric(
        "tailcause.kernel_log.events",
        "{event}",
        Kind.COUNTER,
        "Lines of the kernel's log that matter, by what they report.",
        (EVENT_NAME,),
    ),
)
