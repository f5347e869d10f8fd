"""Decoy `decoy-deploy`: a new revision that changes nothing."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultKind, Injection
from kernels.faults.releases import bump, new_revision
from kernels.supervisor.control import DeployRequest, ask


@dataclass(frozen=True)
class DecoyDeploy:
    """Deploys the same code and settings as a new revision, which then stays."""

    name: str = "decoy-deploy"
    kind: FaultKind = FaultKind.DECOY
    description: str = "rolling deploy of a harmless revision, which stays"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Deploy, and wait until the new revision serves alone."""
        old = context.workload
        request = DeployRequest(
            new_revision(context.rng(self.name)), bump(old.version, 2), old.settings
        )
        deployed = ask(context.state_dir, request)
        return Injection(
            target=old.service,
            started_unix_s=deployed.new_accepting_unix_s,
            parameters={
                "revision": request.revision,
                "version": request.version,
                "old_revision": old.revision,
            },
        )
