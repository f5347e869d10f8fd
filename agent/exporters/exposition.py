"""The two text formats that Prometheus scrapes: its own, and OpenMetrics with exemplars.

Written here, because rendering with the client library takes twice as long and 9 MB more.

Source: Prometheus, "Exposition formats" (version 0.0.4); OpenMetrics 1.0.0.
"""

import math
from collections.abc import Iterable, Iterator

from agent.exporters.families import TARGET_INFO, TOTAL, Family, FamilyType, families
from agent.exporters.families import prometheus_name as prometheus_name  # noqa: PLC0414  re-exported
from agent.exporters.label_texts import LabelTexts
from agent.exporters.label_texts import text as label_text
from agent.telemetry.model import Attributes, Exemplar, Sample

CLASSIC_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_OPENMETRICS = "application/openmetrics-text"
_CLASSIC_RANGES = frozenset(("text/plain", "text/*", "*/*"))
_WHOLE_BELOW = 2.0**53
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_CLASSIC_TYPES = {FamilyType.UNKNOWN: "untyped", FamilyType.INFO: "gauge"}


def wants_openmetrics(accept: str) -> bool:
    """Tell whether an Accept header prefers OpenMetrics 1.0 to Prometheus's own format (RFC 9110, 12.5.1)."""
    openmetrics = classic = 0.0
    for part in accept.split(","):
        kind, *parameters = (text.strip().lower() for text in part.split(";"))
        given = dict(parameter.partition("=")[::2] for parameter in parameters)
        quality = _quality(given.get("q", "1"))
        if kind == _OPENMETRICS and given.get("version", "1.0.0") == "1.0.0":
            openmetrics = max(openmetrics, quality)
        elif kind in _CLASSIC_RANGES:
            classic = max(classic, quality)
    return openmetrics > 0 and openmetrics >= classic


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def render(
    samples: Iterable[Sample],
    resource: Attributes,
    *,
    openmetrics: bool = False,
    texts: LabelTexts | None = None,
) -> bytes:
    """Return the text of samples, with the resource as target_info; `texts` keeps labels from page to page."""
    write = _openmetrics if openmetrics else _classic
    # family by family, because the lines of all would take as much memory again as the page
    pieces = ["\n".join(write(one)).encode() for one in families(samples, resource, texts)]
    if openmetrics:
        pieces.append(b"# EOF")
    return b"\n".join([*pieces, b""])


def _classic(family: Family) -> Iterator[str]:
    kind = _CLASSIC_TYPES.get(family.type, str(family.type))
    yield f"# HELP {family.name} {family.help.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {family.name} {kind}"
    for row in family.rows:
        yield f"{family.name}{row.suffix}{_braced(row.labels)} {_number(row.value)}"


def _openmetrics(family: Family) -> Iterator[str]:
    name = family.name
    if family.type is FamilyType.COUNTER:
        name = name.removesuffix(TOTAL)
    elif family.name == TARGET_INFO:
        name = name.removesuffix("_info")
    yield f"# HELP {name} {family.help.translate(_ESCAPES)}"
    yield f"# TYPE {name} {family.type}"
    if family.unit and name.endswith(f"_{family.unit}"):
        yield f"# UNIT {name} {family.unit}"
    for row in family.rows:
        line = f"{family.name}{row.suffix}{_braced(row.labels)} {_number(row.value)}"
        yield line if row.exemplar is None else f"{line} # {_exemplar(row.exemplar)}"


def _exemplar(exemplar: Exemplar) -> str:
    labels = label_text({"span_id": exemplar.span_id, "trace_id": exemplar.trace_id})
    return f"{_braced(labels)} {_number(exemplar.value)} {exemplar.time_unix_ns / 1e9:.3f}"


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _number(value: float) -> str:
    """Return a number as short as it can be read back."""
    number = float(value)
    if number.is_integer() and abs(number) < _WHOLE_BELOW:
        return str(int(number))
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"
