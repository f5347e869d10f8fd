"""Injects every fault at several intensities into a real workload and prints what the P99 really became.

    python -m tests.bench.calibrate_faults [--faults net-loss,hang] [--intensities 1.5,3,6] [--seconds 20] [--json FILE]

The table goes into `kernels/README.md`, and the factors into the tables of the faults. For each run the requests of the
seconds before are the baseline, on the same server under the same load; a request counts for the moment in which it
left. One that failed, or that nobody answered, is slower than any other. Run it on a quiet machine, as root.

Exit code 0 when every fault was injected and undone, 1 otherwise.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kernels.fakenvml.scenarios import healthy
from kernels.faults.base import Fault
from kernels.faults.registry import FAULTS
from kernels.load.azure import CONVERSATION
from kernels.load.client import Client
from kernels.load.plan import PlanConfig, Planned, plan
from kernels.load.source import TableSource
from kernels.load.tally import Outcome, quantile

RATE = 20.0
_WARM_S = 5.0
_LONGEST_S = 24 * 3600.0


@dataclass(frozen=True)
class Row:
    """One injection: what was set, and the P99 before and during it, in seconds (inf: unanswered)."""

    fault: str
    kind: str
    intensity: float
    p99_before_s: float
    p99_during_s: float
    requests: int
    parameters: dict[str, object]
    problem: str = ""

    @property
    def factor(self) -> float:
        """What became of the P99."""
        return self.p99_during_s / self.p99_before_s if self.p99_before_s else math.nan


class Recorder:
    """Sends the plan and remembers when each request left and how long it took."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sent: list[tuple[float, float]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, requests: Sequence[Planned] | AsyncIterator[Planned]) -> None:
        """Send until cancelled, whatever becomes of the answers."""
        started = time.monotonic()
        for planned in requests:  # type: ignore[union-attr]
            await asyncio.sleep(max(0.0, started + planned.at_s - time.monotonic()))
            task = asyncio.create_task(self._one(planned))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _one(self, planned: Planned) -> None:
        left = len(self._sent)
        self._sent.append((time.monotonic(), math.inf))
        answer = await self._client.send(planned)
        if answer.outcome is Outcome.OK:
            self._sent[left] = (self._sent[left][0], answer.total_s)

    def p99_s(self, start: float, end: float) -> tuple[float, int]:
        """P99 of the requests that left in a stretch of time, and how many they were."""
        taken = sorted(took for at, took in self._sent if start <= at < end)
        finite = [took for took in taken if took < math.inf]
        if len(taken) - len(finite) > len(taken) / 100:
            return math.inf, len(taken)
        return quantile(taken, 0.99) or math.nan, len(taken)


@dataclass(frozen=True)
class Run:
    """What the command line asked for."""

    intensities: tuple[float, ...]
    seconds: float
    settings: tuple[str, ...]


async def calibrate(fault: Fault, run: Run) -> list[Row]:
    """Start a workload with what the fault needs, and inject it at every intensity."""
    with tempfile.TemporaryDirectory(prefix="tccal") as folder:
        state, gpus = Path(folder) / "state", Path(folder) / "gpus"
        healthy().write(gpus)
        name = Path(folder).name
        words = ["up", "--state", str(state), "--port", "0", "--service", name, *_needs(fault, run)]
        async with _process(words, Path(folder) / "up.log") as (_, first):
            url = f"http://{first['host']}:{first['port']}"
            async with Client(url) as client:
                recorder = Recorder(client)
                source = TableSource(CONVERSATION)
                sending = asyncio.create_task(
                    recorder.run(plan(PlanConfig(RATE, _LONGEST_S, 1), source))  # type: ignore[arg-type]
                )
                try:
                    await asyncio.sleep(_WARM_S)
                    return [
                        await _inject(fault, run, intensity, (state, gpus, recorder))
                        for intensity in run.intensities
                    ]
                finally:
                    sending.cancel()


def _needs(fault: Fault, run: Run) -> list[str]:
    """Words for `up`; addresses of databases have to come from the command line."""
    given = {setting.partition("=")[0] for setting in run.settings}
    words = [word for setting in run.settings for word in ("--set", setting)]
    pairs = zip(("", *fault.needs), fault.needs, strict=False)
    for before, word in pairs:
        if before == "--set":
            if word.partition("=")[0] not in given:
                words += ["--set", word]
        elif word != "--set":
            words.append(word)
    return words


async def _inject(
    fault: Fault, run: Run, intensity: float, where: tuple[Path, Path, Recorder]
) -> Row:
    state, gpus, recorder = where
    await asyncio.sleep(run.seconds)
    words = [
        "fault",
        fault.name,
        "--state",
        str(state),
        "--intensity",
        str(intensity),
        "--for",
        "1h",
    ]
    words += ["--gpus", str(gpus), "--seed", "1"]
    began = time.monotonic()
    try:
        async with _process(words) as (process, first):
            active = time.monotonic()
            await asyncio.sleep(run.seconds)
            ended = time.monotonic()
            process.send_signal(signal.SIGTERM)
            code = await process.wait()
    except RuntimeError as error:
        return Row(fault.name, str(fault.kind), intensity, math.nan, math.nan, 0, {}, str(error))
    await asyncio.sleep(run.seconds / 2)  # what left at the end is answered by then, or never
    before, _ = recorder.p99_s(began - run.seconds, began)
    during, count = recorder.p99_s(active, ended)
    problem = "" if code == 0 else f"exit code {code}"
    return Row(
        fault.name, str(fault.kind), intensity, before, during, count, first["parameters"], problem
    )  # fmt: skip


@contextlib.asynccontextmanager
async def _process(
    words: Sequence[str], log: Path | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, dict[str, object]]]]:
    """Start a command, read its first line, end it politely; what it logs goes to a file, if one is named."""
    with contextlib.ExitStack() as held:
        errors = held.enter_context(log.open("ab")) if log is not None else None
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kernels.cli", *words, stdout=asyncio.subprocess.PIPE, stderr=errors
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"exit code {await process.wait()}")
        yield process, json.loads(line)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


def table(rows: Sequence[Row]) -> str:
    """Render a line a fault: its kind and the factors measured."""
    intensities = list(dict.fromkeys(row.intensity for row in rows))
    lines = ["| fault | kind | " + " | ".join(f"{x:g} times" for x in intensities) + " |"]
    lines.append("|---" * (2 + len(intensities)) + "|")
    for name in dict.fromkeys(row.fault for row in rows):
        mine = {row.intensity: row for row in rows if row.fault == name}
        cells = [_cell(mine.get(x)) for x in intensities]
        kind = next(iter(mine.values())).kind
        lines.append(f"| `{name}` | {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    if row.problem:
        return row.problem
    if math.isinf(row.p99_during_s):
        return "unanswered"
    return f"{row.factor:.1f} ({row.p99_before_s * 1e3:.0f} → {row.p99_during_s * 1e3:.0f} ms)"


def main() -> int:
    """Calibrate what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", default="", help="names, comma-separated (all)")
    parser.add_argument("--intensities", default="1.5,3,6")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each window")
    parser.add_argument("--set", action="append", default=[], help="setting of `up`, repeatable")
    parser.add_argument("--json", type=Path, help="write every run here")
    options = parser.parse_args()
    wanted = options.faults.split(",") if options.faults else [fault.name for fault in FAULTS]
    run = Run(
        tuple(map(float, options.intensities.split(","))), options.seconds, tuple(options.set)
    )
    rows: list[Row] = []
    for fault in FAULTS:
        if fault.name in wanted:
            rows += asyncio.run(calibrate(fault, run))
            sys.stderr.write(table(rows[-len(run.intensities) :]).splitlines()[-1] + "\n")
    sys.stdout.write(f"{os.cpu_count()} cores, {RATE:g} requests/s, {run.seconds:g} s a window\n\n")
    sys.stdout.write(table(rows) + "\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 1 if any(row.problem for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
