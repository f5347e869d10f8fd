"""From our log records to an OTLP logs request."""

from collections.abc import Iterable

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2

from agent.otlp.encode import SCOPE_NAME, set_attributes
from agent.telemetry.log import LogRecord
from agent.telemetry.model import Attributes


def encode_logs(records: Iterable[LogRecord], resource: Attributes) -> bytes:
    """Return an ExportLogsServiceRequest with the records under one resource."""
    request = logs_service_pb2.ExportLogsServiceRequest()
    resource_logs = request.resource_logs.add()
    set_attributes(resource_logs.resource.attributes, resource)
    scope_logs = resource_logs.scope_logs.add()
    scope_logs.scope.name = SCOPE_NAME
    for record in records:
        written = scope_logs.log_records.add()
        written.time_unix_nano = record.time_unix_ns
        written.observed_time_unix_nano = record.observed_unix_ns
        written.severity_number = int(record.severity)
        written.severity_text = record.severity.name
        written.event_name = record.event_name
        written.body.string_value = record.body
        set_attributes(written.attributes, record.attributes)
    body: bytes = request.SerializeToString()
    return body
