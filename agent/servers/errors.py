"""What can go wrong between the agent and an inference server."""

from agent.errors import AgentError
from agent.telemetry.model import SignalState


class ScrapeError(AgentError):
    """A page could not be read; `outcome` counts it, `remedy` says what to do about it."""

    def __init__(self, outcome: str, reason: str, state: SignalState, remedy: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.state = state
        self.remedy = remedy
