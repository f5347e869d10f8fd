"""Fault `kv-exhaustion`: a deploy leaves so little KV cache that running requests lose their place to one another."""

from dataclasses import dataclass

import msgspec

from kernels.faults.base import FaultContext, FaultKind, Injection, interpolate
from kernels.faults.demand import measure, send_more
from kernels.supervisor.actions import AskSupervisor
from kernels.supervisor.control import DeployRequest, ask
from kernels.supervisor.state import control_socket

KV_TOKENS = ((1.5, 768), (3.0, 640), (6.0, 512))
"""(P99 factor, tokens that the cache holds), estimated; 4096 are the default. Preemptions are certain, a slower P99 is not."""

OUTPUT_TOKENS = (80, 120, 160)
EXTRA_CORES = 0.35
"""Cores that the long answers would take if cost grew with length."""

_COST = 120 / 14


@dataclass(frozen=True)
class KvExhaustionFault:
    """Restarts the server, same revision, with a small cache, and has somebody ask for long answers.

    A request is preempted when the cache is full and computed anew later (`vllm:num_preemptions`).
    """

    name: str = "kv-exhaustion"
    kind: FaultKind = FaultKind.FAULT
    description: str = "a small KV cache under long answers: requests preempt each other"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Measure, restart with little cache, send long answers on top."""
        now, old = measure(context), context.workload
        kv_tokens = round(interpolate(KV_TOKENS, context.options.intensity))
        back = DeployRequest(old.revision, old.version, old.settings)
        request = DeployRequest(
            old.revision, old.version, old.settings | {"kv_tokens": str(kv_tokens)}
        )
        socket = str(control_socket(context.state_dir))
        context.reaper.add(AskSupervisor(socket, msgspec.to_builtins(back)))
        deployed = ask(context.state_dir, request)
        lengths = ":".join(map(str, OUTPUT_TOKENS))
        extra = now.rate_per_core * EXTRA_CORES / _COST
        process = send_more(context, self.name, extra, ("--output-tokens", lengths))
        return Injection(
            target=old.service,
            started_unix_s=deployed.new_accepting_unix_s,
            parameters={
                "kv_tokens": kv_tokens,
                "extra_rate": round(extra, 2),
                "output_tokens": list(OUTPUT_TOKENS),
            },
            processes=(process,),
        )
