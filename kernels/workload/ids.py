"""Ids that are known before their span is made, so that a span's edges can be marked while its work is done."""

import threading
from dataclasses import dataclass

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids of one root span."""

    trace_id: int
    span_id: int


class ReservedIds(RandomIdGenerator):
    """Random ids; those that a thread gives back with `use` go to the next root span that it makes."""

    def __init__(self) -> None:
        self._next = threading.local()

    def reserve(self) -> Ids:
        """Draw the ids of a span to come."""
        return Ids(super().generate_trace_id(), super().generate_span_id())

    def use(self, ids: Ids) -> None:
        """Have the next root span of this thread carry these ids."""
        self._next.ids = ids

    def generate_trace_id(self) -> int:
        """Return the reserved trace id, else a random one."""
        ids: Ids | None = getattr(self._next, "ids", None)
        return ids.trace_id if ids is not None else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """Return the reserved span id and forget it, else a random one."""
        ids: Ids | None = getattr(self._next, "ids", None)
        if ids is None:
            return super().generate_span_id()
        self._next.ids = None
        return ids.span_id
