"""Errors of the workload package: one base class, caught at the command line."""


class WorkloadError(Exception):
    """The workload cannot start or go on; the message says what to do, the exit code is 2."""
