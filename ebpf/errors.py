"""What can go wrong with probes; messages say what to do."""


class EbpfError(Exception):
    """Base of all errors of this package."""


class NotSupportedError(EbpfError):
    """This kernel, or this machine, does not have what the probe needs."""


class NoBtfError(NotSupportedError):
    """This kernel does not describe its types, which the default loader needs."""


class SwitchedOffError(EbpfError):
    """The probe attaches only when it is asked to, and it was not."""


class NoPermissionError(EbpfError):
    """A capability is missing."""


class LoadError(EbpfError):
    """The kernel refused a program or a map; the message holds the end of its log."""
