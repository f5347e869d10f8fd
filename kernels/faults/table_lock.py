"""Locks the tenants' tables: `python -m kernels.faults.table_lock --url URL --hold SECONDS --pause SECONDS`."""

import argparse
import sys
import time

from kernels.workload.breaker import UnavailableError
from kernels.workload.postgres import Session

_DEADLINE_S = 30.0
_TABLES = """
SELECT quote_ident(schemaname) || '.tenants' FROM pg_tables
WHERE tablename = 'tenants' AND schemaname LIKE 'tailcause\\_%'
"""


def main() -> int:
    """Lock and let go until killed; the database lets go of what a dead connection held."""
    parser = argparse.ArgumentParser(prog="table_lock")
    parser.add_argument("--url", required=True, help="postgresql://…")
    parser.add_argument("--hold", type=float, required=True, help="seconds")
    parser.add_argument("--pause", type=float, required=True, help="seconds")
    options = parser.parse_args()
    try:
        session = Session.open(options.url, _deadline_s())
        rows = session.run(_TABLES, _deadline_s())
        tables = ", ".join(_text(row[0]) for row in rows)
        if not tables:
            sys.stderr.write("table_lock: no server has made a table of tenants there yet\n")
            return 2
        sys.stdout.write(f"ready {tables.replace(' ', '')}\n")
        sys.stdout.flush()
        while True:
            lock = f"BEGIN; LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE"
            session.run(lock, _deadline_s())
            time.sleep(options.hold)
            session.run("ROLLBACK", _deadline_s())
            time.sleep(options.pause)
    except UnavailableError as error:
        sys.stderr.write(f"table_lock: {error.reason} {error}\n")
        return 1


def _deadline_s() -> float:
    return time.monotonic() + _DEADLINE_S


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    sys.exit(main())
