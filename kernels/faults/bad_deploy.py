"""Fault `bad-deploy`: a rolling deploy to a revision that is genuinely slower."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection, interpolate
from kernels.faults.releases import bump, new_revision
from kernels.supervisor.actions import AskSupervisor
from kernels.supervisor.control import DeployRequest, ask
from kernels.supervisor.state import control_socket

Table = Sequence[tuple[float, float]]

VARIANTS: Mapping[str, Mapping[str, str | Table]] = {
    "dropped-index": {
        "tenant_index": "off",
        "sql_rows": ((1.5, 60_000), (3.0, 105_000), (6.0, 150_000)),
    },
    "static-batching": {
        "batching": "static",
        "batch_wait_s": ((1.5, 0.05), (3.0, 0.16), (6.0, 0.35)),
    },
    "deeper-model": {"layers": ((1.5, 6), (3.0, 9), (6.0, 11))},
    "kv-cut": {"kv_tokens": ((1.5, 512), (3.0, 384), (6.0, 288))},
    "prefix-cache-off": {"prefix_cache": "off", "prompt_cache": "0"},
}
"""Settings of each slower revision; a table reads as (P99 factor, value), measured at 20
requests/s."""

DRAWN = ("deeper-model", "dropped-index", "static-batching")
"""What a seed chooses from. The others have to be named: what they cost hangs on the traffic, and without the
prefix cache only requests that share a beginning get slower (`load --prefix-tokens`)."""


@dataclass(frozen=True)
class BadDeployFault:
    """Deploys a revision whose code path is slower, and deploys the old one back at the end."""

    name: str = "bad-deploy"
    kind: FaultKind = FaultKind.FAULT
    description: str = "rolling deploy of a slower revision"
    variants: tuple[str, ...] = tuple(VARIANTS)
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Deploy, and wait until the new revision serves alone."""
        rng = context.rng(self.name)
        variant = context.options.variant or rng.choice(DRAWN)
        old = context.workload
        back = DeployRequest(old.revision, old.version, old.settings)
        request = DeployRequest(
            new_revision(rng),
            bump(old.version, 1),
            old.settings | _settings(variant, context.options.intensity),
        )
        context.reaper.add(
            AskSupervisor(str(control_socket(context.state_dir)), msgspec.to_builtins(back))
        )
        deployed = ask(context.state_dir, request)
        return Injection(
            target=old.service,
            started_unix_s=deployed.new_accepting_unix_s,
            parameters={
                "variant": variant,
                "revision": request.revision,
                "version": request.version,
                "settings": request.settings,
                "old_revision": old.revision,
            },
        )


def _settings(variant: str, intensity: float) -> dict[str, str]:
    """Give the settings that make a variant slow."""
    if variant not in VARIANTS:
        raise FaultError(f"no variant {variant!r}: choose one of {', '.join(sorted(VARIANTS))}")
    return {
        key: value if isinstance(value, str) else _text(interpolate(value, intensity))
        for key, value in VARIANTS[variant].items()
    }


def _text(value: float) -> str:
    """Write a whole number without a point; only fractions below 1 are meant as fractions."""
    return f"{value:.3f}" if value < 1 else str(round(value))
