"""What can go wrong between the agent and the kubelet."""

from agent.errors import AgentError
from agent.telemetry.model import SignalState


class KubeletError(AgentError):
    """The kubelet gave no usable answer; `outcome` counts it, `remedy` says what to do about it."""

    def __init__(self, reason: str, outcome: SignalState, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outcome = outcome
        self.remedy = remedy
