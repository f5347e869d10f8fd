"""What crosses a process boundary as a log record."""

from enum import IntEnum

import msgspec

from agent.telemetry.model import Attributes


class Severity(IntEnum):
    """The lowest number of each range of OTLP severities."""

    INFO = 9
    WARN = 13
    ERROR = 17
    FATAL = 21


class LogRecord(msgspec.Struct, frozen=True):
    """One event; the body is the same for all events of a kind, what differs is in the attributes."""

    event_name: str
    severity: Severity
    body: str
    time_unix_ns: int
    observed_unix_ns: int
    attributes: Attributes = {}
