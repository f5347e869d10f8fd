"""Opening NVML when there is something to read, and letting go of it when there is not."""

import logging
import time
from collections.abc import Callable

from agent.collectors.base import NoData
from agent.errors import AgentError
from agent.gpu.session import RELOAD, DriverGoneError, Outcome, Session, SessionContext
from agent.telemetry.model import SignalState

_log = logging.getLogger(__name__)

_BACK_OFF_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
_RENEW_S = 300.0
"""A GPU that was reset is found again by a session that was opened after it."""


class Gpus:
    """The GPUs of this host, over reloads of the driver; holds nothing of it while no GPU can be used."""

    def __init__(
        self, context: SessionContext, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._context = context
        self._monotonic_s = monotonic_s
        self._session: Session | None = None
        self._opened_s = 0.0
        self._failures = 0
        self._again_s = float("-inf")
        self._refusal: AgentError = NoData("the GPUs were not looked for yet")
        self._lost: list[Outcome] = []
        self._overflow = 0

    @property
    def overflow(self) -> int:
        """Return how many processes were left out so far."""
        return self._overflow + (self._session.overflow if self._session is not None else 0)

    def read(self) -> list[Outcome]:
        """Return what each GPU came to; raises `NoData` or `AgentError` when none can be asked, at once while backing off."""
        if self._session is None and self._monotonic_s() < self._again_s:
            if self._lost:
                return self._lost  # they stay so meanwhile
            raise self._refusal
        session = self._session or self._open()
        try:
            outcomes = session.read()
        except DriverGoneError as exc:
            raise self._refused(
                NoData(f"the NVIDIA driver has gone: {exc}", remedy=RELOAD)
            ) from exc
        states = {outcome.state for outcome in outcomes}
        self._lost = []
        if states == {SignalState.GPU_LOST}:
            self._refused(NoData("every GPU is lost", SignalState.GPU_LOST))
            self._lost = outcomes
        elif states == {SignalState.FAILED} and not any(outcome.samples for outcome in outcomes):
            reasons = "; ".join(outcome.reason for outcome in outcomes)
            raise self._refused(AgentError(f"NVML: {reasons}"))
        elif SignalState.GPU_LOST in states and self._monotonic_s() - self._opened_s > _RENEW_S:
            self.close()
        else:
            self._failures = 0
        return outcomes

    def _open(self) -> Session:
        try:
            self._session = Session(self._context)
        except AgentError as exc:  # NoData is one
            raise self._refused(exc) from exc.__cause__
        self._opened_s = self._monotonic_s()
        _log.info("event=gpu_opened")
        return self._session

    def _refused(self, refusal: AgentError) -> AgentError:
        """Let go, remember why, and look again later and later."""
        self.close()
        self._refusal, self._lost = refusal, []
        delay_s = _BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)]
        self._again_s = self._monotonic_s() + delay_s
        self._failures += 1
        return refusal

    def close(self) -> None:
        """Let go of the driver."""
        session, self._session = self._session, None
        if session is None:
            return
        self._overflow += session.overflow
        released = session.close()
        _log.info("event=gpu_released complete=%s", released)
