"""One connection to PostgreSQL, each call with a deadline of its own.

The thread that asks sleeps in poll(2) until the server answers: that is what the kernel then says of its span, waiting
for the network. A driver of the event loop would leave the wait to nobody. libpq's non-blocking calls, as its manual
describes them ("Asynchronous Command Processing"), since its blocking ones know no deadline and a server that is
frozen would hold the thread for ever.
"""

import select
import time
from collections.abc import Callable, Sequence

from psycopg import Error, pq

from kernels.workload.breaker import UnavailableError

Row = tuple[bytes, ...]

_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY)
_QUERY_CANCELED = "57014"  # by statement_timeout: the server's own clock was the faster one
_LOOKUP = b"lookup"


class Session:
    """A connection; one that has raised is of no further use."""

    def __init__(self, raw: pq.abc.PGconn) -> None:
        self._raw = raw

    @classmethod
    def open(cls, conninfo: str, deadline_s: float) -> "Session":
        """Connect and log in. Raises UnavailableError."""
        raw = pq.PGconn.connect_start(conninfo.encode())
        session = cls(raw)
        try:
            session._log_in(deadline_s)
        except UnavailableError:
            raw.finish()
            raise
        raw.nonblocking = 1
        return session

    @property
    def namespace(self) -> str:
        """Name of the database."""
        return self._raw.db.decode(errors="replace")

    def run(self, sql: str, deadline_s: float) -> list[Row]:
        """Run statements without parameters; the rows of the last one. Raises UnavailableError."""
        return self._call(lambda: self._raw.send_query(sql.encode()), deadline_s)

    def prepare(self, sql: str, deadline_s: float) -> None:
        """Have the look-up parsed and planned once."""
        self._call(lambda: self._raw.send_prepare(_LOOKUP, sql.encode()), deadline_s)

    def look_up(self, values: Sequence[str], deadline_s: float) -> list[Row]:
        """Run the prepared look-up. Raises UnavailableError."""
        encoded = [value.replace("\0", "").encode(errors="replace") for value in values]
        return self._call(lambda: self._raw.send_query_prepared(_LOOKUP, encoded), deadline_s)

    def close(self) -> None:
        """Hang up."""
        self._raw.finish()

    def _log_in(self, deadline_s: float) -> None:
        while True:
            match self._raw.connect_poll():
                case pq.PollingStatus.OK:
                    return
                case pq.PollingStatus.FAILED:
                    raise UnavailableError("connection_failed", self._message())
                case pq.PollingStatus.WRITING:
                    self._wait(select.POLLOUT, deadline_s)
                case _:
                    self._wait(select.POLLIN, deadline_s)

    def _call(self, send: Callable[[], None], deadline_s: float) -> list[Row]:
        try:
            send()
            while self._raw.flush():
                self._wait(select.POLLOUT, deadline_s)
            return self._results(deadline_s)
        except Error as error:
            raise UnavailableError("connection_lost", str(error).strip()) from error

    def _results(self, deadline_s: float) -> list[Row]:
        rows: list[Row] = []
        while True:
            while self._raw.is_busy():
                self._wait(select.POLLIN, deadline_s)
                self._raw.consume_input()
            result = self._raw.get_result()
            if result is None:
                return rows
            rows = _rows(result)

    def _wait(self, events: int, deadline_s: float) -> None:
        poller = select.poll()
        poller.register(self._raw.socket, events)
        left_ms = (deadline_s - time.monotonic()) * 1e3
        if left_ms <= 0 or not poller.poll(left_ms):
            raise UnavailableError("timeout")

    def _message(self) -> str:
        return self._raw.error_message.decode(errors="replace").strip()


def _rows(result: pq.abc.PGresult) -> list[Row]:
    if result.status not in _GOOD:
        code = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        message = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(
            errors="replace"
        )
        raise UnavailableError(
            "timeout" if code == _QUERY_CANCELED else code or "connection_lost", message
        )
    return [
        tuple(result.get_value(row, column) or b"" for column in range(result.nfields))
        for row in range(result.ntuples)
    ]
