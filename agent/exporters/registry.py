"""The table of exporters: to add one, write its file and its line here."""

from collections.abc import Callable

from agent.exporters.base import Exporter, ExporterContext
from agent.exporters.otlp import OtlpExporter
from agent.exporters.prometheus import PrometheusExporter

EXPORTERS: tuple[tuple[str, Callable[[ExporterContext], Exporter]], ...] = (
    ("otlp", OtlpExporter),
    ("prometheus", PrometheusExporter),
)
