"""What can go wrong in the detector; messages say what to do."""


class DetectorError(Exception):
    """Base of all errors that the detector raises on purpose."""


class CannotStartError(DetectorError):
    """The service or a command cannot start: port taken, folder not writable, bad setting."""


class ConfigError(CannotStartError):
    """A setting is unknown or out of range."""


class NotFoundError(DetectorError):
    """The incident asked for does not exist."""


class StorageError(DetectorError):
    """A segment or the incident database cannot be read or written."""


class AnalysisError(DetectorError):
    """A snapshot holds too little to be analysed."""
