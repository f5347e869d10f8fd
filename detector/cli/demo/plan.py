"""What a demo run does, drawn from its seed before anything starts."""

import random
from enum import StrEnum

import msgspec

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


class Fault(StrEnum):
    """What `--fault` takes."""

    CPU_QUOTA = "cpu-quota"
    BAD_DEPLOY = "bad-deploy"
    SURGE = "surge"
    NOISY_NEIGHBOUR = "noisy-neighbour"
    NONE = "none"


NEEDS_CGROUP = frozenset({Fault.CPU_QUOTA, Fault.NOISY_NEIGHBOUR})
NEEDS_PROBES = frozenset({Fault.NOISY_NEIGHBOUR})
"""Who had the CPU while the service waited is known to the scheduler probe alone."""

_INTENSITY: dict[Fault, tuple[float, float]] = {
    Fault.CPU_QUOTA: (5.0, 7.0),
    Fault.BAD_DEPLOY: (4.5, 6.0),
    Fault.SURGE: (4.5, 6.0),
    Fault.NOISY_NEIGHBOUR: (4.5, 6.0),
}
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
    kept = tuple(step for step in plan.steps if step.injection != "decoy-throttled")
    return msgspec.structs.replace(plan, steps=kept)


def _steps(fault: Fault, rng: random.Random) -> tuple[Step, ...]:
    """Order the decoys around the fault: the bystander first, the deploy before or after."""
    bystander = _decoy("decoy-throttled", rng.uniform(0.0, 2.0), rng)
    deploy_first = rng.random() < 0.6
    apart_s = rng.uniform(CLEAR_OF_FAULT_S + 0.5, 12.0)
    if fault is Fault.NONE:
        return (bystander, _decoy("decoy-deploy", apart_s, rng))
    low, high = _INTENSITY[fault]
    real = Step(fault.value, apart_s, rng.uniform(low, high), rng.randrange(2**31), decoy=False)
    if fault is Fault.NOISY_NEIGHBOUR:
        return (bystander, _decoy("decoy-neighbour", rng.uniform(0.0, 2.0), rng), real)
    if fault is not Fault.CPU_QUOTA:
        return (bystander, real)
    if deploy_first:
        return (bystander, _decoy("decoy-deploy", rng.uniform(0.0, 2.0), rng), real)
    after_s = rng.uniform(CLEAR_OF_FAULT_S + 0.5, 9.0)
    return (bystander, real, _decoy("decoy-deploy", after_s, rng))


def _decoy(name: str, wait_s: float, rng: random.Random) -> Step:
    return Step(name, wait_s, 1.0, rng.randrange(2**31), decoy=True)
