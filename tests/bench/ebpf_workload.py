"""What the probes cost a served model: the same requests with and without, paired, with a control."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

from ebpf.hook.library import LIBRARY, PATH_VARIABLE
from ebpf.probes.span import SpanProbe
from ebpf.registry import PROBES
from ebpf.session import BUILT
from kernels.load.azure import CONVERSATION
from kernels.load.client import Client
from kernels.load.plan import PlanConfig, Planned, plan
from kernels.load.source import TableSource
from kernels.load.tally import Outcome
from tests.bench.ebpf_cost import WrongCountError, attached
from tests.bench.ebpf_end_to_end import cpu_seconds
from tests.bench.paired import Estimate, estimate
from tests.support.live_workload import workload

ASKED_FOR = {"cuda", "nccl"}
"""Probes that are off unless somebody asks for them."""
WARM_UP = 3
_PLAN = PlanConfig(rate=20.0, duration_s=3600.0, seed=7, repeat_share=0.0)


@dataclass(frozen=True)
class PairedRound:
    """CPU seconds that the server took for the same requests, in turns: alone X alone Y alone.

    X and Y are with our probes and, as a control, alone once more; which comes first changes from round to round.
    """

    alone_s: tuple[float, float, float]
    between_s: tuple[float, float]
    ours_first: bool

    @property
    def ours(self) -> float:
        """How much more with our probes than in the turns beside it."""
        return self._more(0 if self.ours_first else 1)

    @property
    def control(self) -> float:
        """How much more with nothing at all: 0 but for noise."""
        return self._more(1 if self.ours_first else 0)

    def _more(self, turn: int) -> float:
        return self.between_s[turn] / mean(self.alone_s[turn : turn + 2]) - 1


@dataclass(frozen=True)
class WorkloadSlowdown:
    """Medians over all rounds."""

    ours: Estimate
    control: Estimate


def workload_slowdown(rounds: int, requests: int) -> WorkloadSlowdown:
    """Serve the same requests over and over, each round five times."""
    with TemporaryDirectory() as folder:
        library = Path(shutil.copy(BUILT / LIBRARY, folder))  # nobody else calls this copy
        environment = ("env", f"{PATH_VARIABLE}={library}")
        with workload("--set", "prompt_cache=0", prefix=environment) as served:
            planned = tuple(islice(plan(_PLAN, TableSource(CONVERSATION)), requests))
            server = Server(served.url, int(served.told()["server_pid"]), library, planned)
            return summed_up(
                [
                    one_round(server.alone_s, server.with_probes_s, ours_first=i % 2 == 0)
                    for i in range(rounds)
                ]
            )


@dataclass(frozen=True)
class Server:
    """The served model, and what it is asked each time."""

    url: str
    pid: int
    library: Path
    planned: tuple[Planned, ...]

    def alone_s(self) -> float:
        """Return the CPU time that the requests take, all threads together; some go first that do not count."""
        asyncio.run(self._ask(WARM_UP))
        before_s = cpu_seconds(self.pid)
        answered = asyncio.run(self._ask(len(self.planned)))
        if answered != len(self.planned):
            raise WrongCountError(f"{len(self.planned)} requests, {answered} answered")
        return cpu_seconds(self.pid) - before_s

    def with_probes_s(self) -> float:
        """Return the same with all probes that are on by default, and the ledger of the server's threads."""
        spans = SpanProbe((self.library,), lambda _: None)
        kinds = [make for name, make in PROBES.items() if name not in ASKED_FOR]
        with attached(*(make() for make in kinds), spans) as session:
            session.watch([self.pid])
            took_s = self.alone_s()
            counted = spans.poll()
        if counted < len(self.planned):
            raise WrongCountError(f"{len(self.planned)} requests, {counted} spans")
        return took_s

    async def _ask(self, count: int) -> int:
        """Send the first requests one after another; return how many were answered."""
        async with Client(self.url) as client:
            answers = [await client.send(one) for one in self.planned[:count]]
        return sum(answer.outcome is Outcome.OK for answer in answers)


def one_round(
    alone: Callable[[], float], ours: Callable[[], float], *, ours_first: bool
) -> PairedRound:
    """Take five turns."""
    first_s = alone()
    one_s = ours() if ours_first else alone()
    second_s = alone()
    other_s = alone() if ours_first else ours()
    return PairedRound((first_s, second_s, alone()), (one_s, other_s), ours_first)


def summed_up(rounds: Sequence[PairedRound]) -> WorkloadSlowdown:
    """Estimate the medians."""
    return WorkloadSlowdown(
        estimate(rounds, lambda some: median(r.ours for r in some)),
        estimate(rounds, lambda some: median(r.control for r in some)),
    )
