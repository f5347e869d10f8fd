"""Quantiles of the public Azure LLM inference traces of 2023.

Source: Azure/AzurePublicDataset, AzureLLMInferenceTrace_conv.csv and _code.csv (CC-BY-4.0), one
hour of requests to two production services; described in Patel et al., "Splitwise: Efficient
Generative LLM Inference Using Phase Splitting", ISCA 2024.

Computed once from the columns ContextTokens, GeneratedTokens and the differences of TIMESTAMP
divided by their mean: `numpy.quantile` at 0, 0.05 … 1 (linear), tokens rounded to whole numbers.
"""

from dataclasses import dataclass

LEVELS = tuple(step / 20 for step in range(21))
"""The probabilities that the tables below are taken at."""


@dataclass(frozen=True)
class TraceQuantiles:
    """One trace: tokens per request, and gaps between arrivals as multiples of the mean gap."""

    name: str
    requests: int
    input_tokens: tuple[float, ...]
    output_tokens: tuple[float, ...]
    gaps: tuple[float, ...]


# fmt: off
CONVERSATION = TraceQuantiles(
    name="conversation",
    requests=19_366,
    input_tokens=(2, 181, 207, 372, 387, 396, 403, 414, 703, 984, 1020, 1045, 1071, 1097, 1130,
                  1189, 1315, 1876, 2734, 4083, 14050),
    output_tokens=(7, 41, 54, 67, 77, 85, 91, 96, 103, 113, 129, 151, 177, 217, 384, 395, 400,
                   411, 424, 451, 1000),
    gaps=(0.0, 0.035, 0.0893, 0.1461, 0.202, 0.267, 0.3358, 0.4062, 0.4825, 0.5637, 0.6549,
          0.761, 0.8775, 1.013, 1.1813, 1.3645, 1.5972, 1.913, 2.3263, 3.1256, 23.8602),
)

CODE = TraceQuantiles(
    name="code",
    requests=8_819,
    input_tokens=(3, 75, 147, 232, 386, 578, 770, 939, 1075, 1261, 1469, 1690, 1909, 2164, 2433,
                  2744, 3192, 3920, 5188, 7303, 7437),
    output_tokens=(6, 6, 7, 7, 8, 9, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 29, 39, 55, 90,
                   1899),
    gaps=(0.0, 0.0002, 0.0005, 0.0023, 0.003, 0.0053, 0.0084, 0.0137, 0.0388, 0.0981, 0.1637,
          0.2298, 0.2438, 0.2514, 0.257, 0.2669, 0.4108, 0.5103, 0.7003, 1.0286, 557.3413),
)
# fmt: on

TRACES = {trace.name: trace for trace in (CONVERSATION, CODE)}
