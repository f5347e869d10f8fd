"""What can go wrong in the agent, told apart by what the caller does about it."""


class AgentError(Exception):
    """Base of all errors that the agent raises on purpose."""


class MalformedError(AgentError):
    """A body is not what its content type promises; the sender must not retry it."""


class TooLargeError(AgentError):
    """A body is larger than the configured limit; the sender must not retry it."""


class ConfigError(AgentError):
    """The configuration cannot be used; the message names the key and what to write instead."""


class CannotStartError(AgentError):
    """The agent cannot start, because of a port or a permission; the message says what to do."""
