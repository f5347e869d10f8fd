"""What a demo run does, drawn from its seed before anything starts."""

import os
import random

import msgspec

from detector.cli.demo.faults import Fault

WINDOW_S = 2.0
CLEAR_OF_FAULT_S = 3 * WINDOW_S
"""A decoy this close to the fault could not be told from it by its time alone."""

_SERVICES = (
    "chat-api",
    "summarizer",
    "copilot",
    "support-bot",
    "search-answers",
    "translate",
    "code-review",
    "mail-drafts",
    "doc-qa",
    "voice-notes",
)
_MODELS = ("heron", "tern", "plover", "avocet", "dunlin", "curlew", "godwit", "whimbrel")


DEFAULT = "cpu-quota"
NEEDS_PROBES = frozenset({"noisy-neighbour"})
"""Who had the CPU while the service waited is known to the scheduler probe alone."""

_NEEDS_CORE = frozenset({"noisy-neighbour", "decoy-neighbour"})
"""The servers get a core of their own, for the neighbour to share or to keep off."""

_BYSTANDER, _DEPLOY = "decoy-throttled", "decoy-deploy"
_USUAL_INTENSITY = (4.5, 6.0)
_INTENSITY: dict[str, tuple[float, float]] = {"cpu-quota": (5.0, 7.0)}
"""How many times higher the P99 shall become.

A factor of three is the least that a run this short can prove; what really comes of a factor scatters with
the traffic of the seconds in which the injector measures, most under a quota.
"""


class Step(msgspec.Struct, frozen=True):
    """One injection: wait `wait_s` after the step before it took effect, then inject."""

    injection: str
    wait_s: float
    intensity: float
    seed: int
    decoy: bool


class Plan(msgspec.Struct, frozen=True):
    """All that the seed decides; `hold_s` is the pause after the last step when there is no fault."""

    fault: Fault
    seed: int
    rate: float
    service: str
    model: str
    version: str
    revision: str
    cgroup: str
    load_seed: int
    workload_seed: int
    steps: tuple[Step, ...]
    hold_s: float

    @property
    def cpus(self) -> str | None:
        """The CPUs that the servers may use; None for all."""
        return str(min(os.sched_getaffinity(0))) if self.fault.name in _NEEDS_CORE else None


def draw(fault: Fault, seed: int, rate: float) -> Plan:
    """Draw the run of `fault` from `seed`: the same seed gives the same plan."""
    rng = random.Random(seed)  # noqa: S311 - a plan to repeat, not a secret
    suffix = f"{rng.randrange(16**4):04x}"
    service = f"{rng.choice(_SERVICES)}-{suffix}"
    return Plan(
        fault=fault,
        seed=seed,
        rate=rate,
        service=service,
        model=f"{rng.choice(_MODELS)}-{rng.choice((1, 2, 3))}",
        version=f"{rng.randint(1, 4)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}",
        revision=f"{rng.getrandbits(160):040x}",
        cgroup=f"/tailcause/{rng.randrange(16**6):06x}/{service}",
        load_seed=rng.randrange(2**31),
        workload_seed=rng.randrange(2**31),
        steps=_steps(fault, rng),
        hold_s=rng.uniform(20.0, 24.0),
    )


def without_cgroups(plan: Plan) -> Plan:
    """Leave out the steps that need cgroups."""
    kept = tuple(step for step in plan.steps if step.injection != _BYSTANDER)
    return msgspec.structs.replace(plan, steps=kept)


def _steps(fault: Fault, rng: random.Random) -> tuple[Step, ...]:
    """Order the decoys around the fault: the bystander first, the deploy before or after."""
    bystander = _decoy(_BYSTANDER, rng.uniform(0.0, 2.0), rng)
    deploy_first = rng.random() < 0.6
    apart_s = rng.uniform(CLEAR_OF_FAULT_S + 0.5, 12.0)
    if fault.silent:
        last = fault.name if fault.name not in {"none", _BYSTANDER} else _DEPLOY
        return (bystander, _decoy(last, apart_s, rng))
    low, high = _INTENSITY.get(fault.name, _USUAL_INTENSITY)
    real = Step(fault.name, apart_s, rng.uniform(low, high), rng.randrange(2**31), decoy=False)
    if fault.name == "noisy-neighbour":
        return (bystander, _decoy("decoy-neighbour", rng.uniform(0.0, 2.0), rng), real)
    if fault.name != "cpu-quota":
        return (bystander, real)
    if deploy_first:
        return (bystander, _decoy(_DEPLOY, rng.uniform(0.0, 2.0), rng), real)
    after_s = rng.uniform(CLEAR_OF_FAULT_S + 0.5, 9.0)
    return (bystander, real, _decoy(_DEPLOY, after_s, rng))


def _decoy(name: str, wait_s: float, rng: random.Random) -> Step:
    return Step(name, wait_s, 1.0, rng.randrange(2**31), decoy=True)
