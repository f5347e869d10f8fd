"""Holds a demo together: folder, processes, view and signals; leaves nothing behind."""

import asyncio
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import aiohttp
import msgspec
from rich.console import Console

from detector.cli.demo import outcome, ports
from detector.cli.demo.conduct import Conductor, Finding
from detector.cli.demo.errors import StoppedError
from detector.cli.demo.guard import alarm, guarded
from detector.cli.demo.live import LiveView
from detector.cli.demo.observe import Observer
from detector.cli.demo.options import Options, say
from detector.cli.demo.outcome import Result
from detector.cli.demo.parts import Layout
from detector.cli.demo.plan import Plan
from detector.cli.demo.processes import Fleet
from detector.cli.demo.rundir import RunDir, open_run
from detector.cli.demo.view import PlainView, View
from detector.model import Report
from detector.report.html import render as render_html
from detector.report.terminal import render as render_text
from detector.state import default_state_dir

_WIDTHS = (60, 110)


async def hold(options: Options, plan: Plan, gpu_library: Path | None = None) -> int:
    """Run the whole demo, with GPUs of the fake NVML where that is given; return its exit code."""
    run = open_run(options.run_dir, default_state_dir(), options.seed)
    fleet = Fleet(run.logs)
    stopped = _on_signals(fleet)
    layout = Layout(plan, ports.take(), run, options.lifetime_s, gpu_library=gpu_library)
    session = Session(options, layout, fleet)
    try:
        await guarded(session.run(), (stopped, fleet.failure))
    except StoppedError:
        if session.exit_code is None:
            raise
    finally:
        await fleet.stop()
        run.close()
    return 1 if session.exit_code is None else session.exit_code


class Session:
    """One demo from its first process to its last word; `exit_code` is None until it is judged."""

    def __init__(self, options: Options, layout: Layout, fleet: Fleet) -> None:
        self.exit_code: int | None = None
        self._options, self._layout, self._fleet = options, layout, fleet
        self._began_s = time.monotonic()

    async def run(self) -> None:
        """Run the phases, tell the result, and stay up where that is asked for."""
        plan, run = self._layout.plan, self._layout.run
        say(
            f"tailcause demo --fault {plan.fault.name} --seed {plan.seed}   (run folder {run.path})"
        )
        view = _view(self._options, self._layout)
        async with aiohttp.ClientSession() as http:
            observer = Observer(http, self._layout.api_url, plan.service, view.show)
            conductor = Conductor(self._layout, self._fleet, observer, view)
            try:
                finding = await _until_found(conductor, view)
                self._tell(conductor, finding)
                if self._options.keep:
                    await _linger(conductor.layout)
            finally:
                await conductor.close()

    def _tell(self, conductor: Conductor, finding: Finding) -> None:
        """Print the report first; only then look at the truth."""
        page = _save(self._layout.run, finding.report)
        if not self._options.as_json:
            _print_report(finding.report, page)
        truths = outcome.read_truths(self._layout.run.truth)
        plan = self._layout.plan
        judgement = outcome.reveal(plan.fault, finding, truths, conductor.counter)
        result = Result(
            plan.fault.name, plan.seed, judgement.exit_code, round(time.monotonic() - self._began_s, 1),
            str(self._layout.run.path), str(page) if page else None, finding.report, truths, judgement,
        )  # fmt: skip
        self._layout.run.write_json("result.json", result)
        if self._options.as_json:
            _print(msgspec.json.encode(result).decode())
        else:
            _print(outcome.tell(judgement, truths, finding.report))
        self.exit_code = judgement.exit_code


async def _until_found(conductor: Conductor, view: View) -> Finding:
    try:
        return await conductor.run()
    finally:
        view.close()


async def _linger(layout: Layout) -> None:
    say(
        "\neverything stays up until Ctrl-C:\n"
        f"  incidents and reports  {layout.api_url}/\n"
        f"  agent's metrics        http://127.0.0.1:{layout.ports.agent_metrics}/metrics\n"
        f"  workload               {layout.workload_url}/metrics\n"
        f"  ports and processes    {layout.run.path / 'run.json'}"
    )
    await asyncio.Event().wait()


def _view(options: Options, layout: Layout) -> View:
    """Choose the live view where there is a terminal to draw on."""
    console = Console(stderr=True)
    if options.as_json or not console.is_terminal or console.is_dumb_terminal:
        return PlainView()
    return LiveView(console, f"tailcause demo   {layout.plan.service} ({layout.plan.model})")


def _save(run: RunDir, report: Report | None) -> Path | None:
    """Write the report beside the logs; return the page's path."""
    if report is None:
        return None
    run.write_json("report.json", report)
    return run.write("report.html", render_html(report).encode())


def _print_report(report: Report | None, page: Path | None) -> None:
    if report is None:
        _print("No incident was raised.\n")
        return
    width = min(max(shutil.get_terminal_size((100, 40)).columns, _WIDTHS[0]), _WIDTHS[1])
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    _print(f"{render_text(report, width, color).rstrip()}\n\nThe same as a page: {page}\n")


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _on_signals(fleet: Fleet) -> asyncio.Future[None]:
    """Return a future that fails on the first signal to stop; the second one kills at once."""
    loop = asyncio.get_running_loop()
    stopped = alarm()

    def stop(number: signal.Signals) -> None:
        if stopped.done():
            fleet.kill()
            os._exit(128 + number)
        say(f"\n{number.name}: stopping everything (again to kill)")
        stopped.set_exception(StoppedError(number))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    return stopped
