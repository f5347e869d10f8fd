"""Keeps a fault in force for a while and has it undone, whatever ends the run."""

import json
import logging
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernels.errors import WorkloadError
from kernels.faults.base import Fault, FaultContext, FaultOptions, Injection
from kernels.faults.truth import truth_of, write_truth
from kernels.supervisor.actions import StampTime
from kernels.supervisor.reaper import Reaper
from kernels.supervisor.state import control_socket, read_state

log = logging.getLogger(__name__)

FAILED = 1
_POLL_S = 0.2


class Stopped(Exception):  # noqa: N818 - not an error: the run was told to end
    """The run is told to end."""


@dataclass(frozen=True)
class RunConfig:
    """One run of one fault."""

    state_dir: Path
    options: FaultOptions
    duration_s: float
    truth: Path | None = None


def run_fault(fault: Fault, config: RunConfig) -> int:
    """Inject, hold, undo; 0 when all of it went well."""
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda *_: stop.set())
    workload = read_state(config.state_dir)
    reaper = Reaper.start()
    code = 0
    injection: Injection | None = None
    try:
        context = FaultContext(
            config.state_dir, workload, config.options, reaper, lambda s: _pause(stop, s)
        )
        if config.truth:
            reaper.add(StampTime(str(config.truth.absolute()), "ended_unix_s"))
        injection = fault.inject(context)
        _announce(fault, injection, config)
        code = _hold(injection, config, stop)
    except Stopped:
        log.info("told to end before the fault was in force fault=%s", fault.name)
    finally:
        undone = _let_go(injection)
        undone = reaper.undo() and undone
    _emit({"event": "ended", "fault": fault.name, "ended_unix_s": time.time(), "undone": undone})
    return code if undone else FAILED


def _pause(stop: threading.Event, seconds: float) -> None:
    if stop.wait(seconds):
        raise Stopped


def _let_go(injection: Injection | None) -> bool:
    """End what this process keeps in force itself; False when that is not confirmed."""
    complete = True
    for held in injection.held if injection else ():
        try:
            held.let_go()
        except (WorkloadError, OSError) as exc:
            complete = False
            log.error("undo failed error=%r", str(exc))  # noqa: TRY400 - no trace
    return complete


def _announce(fault: Fault, injection: Injection, config: RunConfig) -> None:
    truth = truth_of(fault, injection, config.options.intensity)
    if config.truth:
        write_truth(config.truth, truth)
    _emit({"event": "active", **msgspec.to_builtins(truth)})


def _hold(injection: Injection, config: RunConfig, stop: threading.Event) -> int:
    """Wait for the end; the death of a process that makes the fault is a failure."""
    deadline = time.monotonic() + config.duration_s
    while (left_s := deadline - time.monotonic()) > 0 and not stop.wait(min(_POLL_S, left_s)):
        for process in injection.processes:
            if process.poll() is not None:
                log.error("fault process died pid=%d status=%d", process.pid, process.returncode)
                return FAILED
        if not control_socket(config.state_dir).exists():
            log.info("workload ended")
            break
    return 0


def _emit(fields: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
