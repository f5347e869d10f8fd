"""Describes a run without starting it, and without giving away when the fault goes in."""

import shlex

import msgspec

from detector.cli.demo import conduct, parts, ports
from detector.cli.demo.options import Options
from detector.cli.demo.parts import Layout
from detector.cli.demo.plan import Plan
from detector.cli.demo.processes import PartSpec
from detector.cli.demo.rundir import RunDir, planned
from detector.state import default_state_dir


def describe(options: Options, plan: Plan) -> str:
    """Return the plan for people, or as JSON."""
    run = RunDir(planned(options.run_dir, default_state_dir(), options.seed))
    layout = Layout(plan, ports.take(), run, options.lifetime_s)
    specs = [
        *map(parts.store, plan.fault.stores), parts.detector(layout), parts.agent(layout), parts.workload(layout),
        parts.load(layout, lambda _: None),
    ]  # fmt: skip
    return _as_json(layout, specs) if options.as_json else _as_text(layout, specs)


def _as_json(layout: Layout, specs: list[PartSpec]) -> str:
    plan = layout.plan
    described = {
        "fault": plan.fault.name, "seed": plan.seed, "service": plan.service, "model": plan.model,
        "cgroup": plan.cgroup, "run_dir": str(layout.run.path), "ports": layout.ports,
        "parts": {spec.name: spec.argv for spec in specs},
        "injectors": sorted(step.injection for step in plan.steps),
        "deadlines_s": dict(_deadlines()),
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(described), indent=2).decode() + "\n"


def _as_text(layout: Layout, specs: list[PartSpec]) -> str:
    plan = layout.plan
    lines = [
        f"fault      {plan.fault.name}, seed {plan.seed}",
        f"service    {plan.service} ({plan.model}, revision {plan.revision[:12]}), {plan.rate:g} requests/s",
        f"cgroup     {plan.cgroup}",
        f"run folder {layout.run.path}",
        "",
        "would start, each a process of its own:",
        *(f"  {spec.name:<16} {shlex.join(spec.argv)}" for spec in specs),
        "",
        "would inject, at times drawn from the seed and hidden until the report: "
        + (", ".join(sorted(step.injection for step in plan.steps)) or "nothing"),
        "",
        "at most: " + ", ".join(f"{name} {limit_s:.0f} s" for name, limit_s in _deadlines()),
        "a run usually takes 60 to 90 s",
    ]
    return "\n".join(lines) + "\n"


def _deadlines() -> list[tuple[str, float]]:
    return [
        ("start", conduct.START_S), ("baseline", conduct.BASELINE_S),
        ("detection", conduct.DETECTION_S), ("analysis", conduct.ANALYSIS_S),
    ]  # fmt: skip
