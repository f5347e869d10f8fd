"""Why a demo ends without a judgement; each carries the exit code of the command."""

from detector.errors import DetectorError


class DemoError(DetectorError):
    """The demo cannot go on; the message says what to do."""

    exit_code = 1


class NotReachedError(DemoError):
    """A phase did not end by its deadline."""


class PartDiedError(DemoError):
    """A part of the demo ended before it should."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StoppedError(DemoError):
    """A signal asked the demo to stop; the exit code is the shell's for that signal."""

    def __init__(self, signal_number: int) -> None:
        super().__init__("stopped")
        self.exit_code = 128 + signal_number
