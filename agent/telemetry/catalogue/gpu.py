"""Metrics of GPUs, through NVML."""

from agent.telemetry.keys import GPU_TASK, HW_ID, HW_NAME, HW_TYPE, REASON
from agent.telemetry.metric import Kind, Metric

GPU = (HW_ID, HW_NAME)

METRICS: tuple[Metric, ...] = (
    Metric(
        "hw.gpu.utilization", "1", Kind.GAUGE, "Share of time the GPU was busy.", (*GPU, GPU_TASK)
    ),
    Metric("hw.gpu.memory.usage", "By", Kind.UP_DOWN, "GPU memory used.", GPU),
    Metric("hw.gpu.memory.limit", "By", Kind.UP_DOWN, "GPU memory installed.", GPU),
    Metric("hw.power", "W", Kind.GAUGE, "Power drawn.", (*GPU, HW_TYPE)),
    Metric(
        "hw.energy", "J", Kind.COUNTER, "Energy used since the driver was loaded.", (*GPU, HW_TYPE)
    ),
    Metric("hw.temperature", "Cel", Kind.GAUGE, "Temperature.", (*GPU, HW_TYPE)),
    Metric(
        "tailcause.gpu.clock.deficit",
        "1",
        Kind.GAUGE,
        "How far the SM clock is below its maximum (0 = at the maximum).",
        GPU,
    ),
    Metric(
        "tailcause.gpu.throttled_time",
        "s",
        Kind.COUNTER,
        "Integrated time the clocks were held down, by reason.",
        (*GPU, REASON),
    ),
)
