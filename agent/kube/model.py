"""Pods as the agent keeps them: what joins and describes, none of the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, field

FINISHED = frozenset(("Succeeded", "Failed"))
"""Phases of pods whose containers will not run again (Kubernetes: "Pod Lifecycle")."""


@dataclass(frozen=True, slots=True)
class Image:
    """A container's image: the name without its tag, the tag, and the runtime's id of it."""

    name: str = ""
    tag: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod; empty or None where the kubelet does not say yet."""

    name: str
    id: str = ""
    serves: bool = True
    """False for containers that run before the others or are put in to debug them."""
    image: Image = Image()
    ready: bool | None = None
    restarts: int | None = None
    amounts: Mapping[str, float] = field(default_factory=dict)
    """CPUs and bytes by `cpu.limit.desired`, `memory.request.current` and so on."""


@dataclass(frozen=True, slots=True)
class Owner:
    """What a pod belongs to: its kind and name, and the deployment behind a ReplicaSet."""

    kind: str = ""
    name: str = ""
    deployment: str = ""


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """Where a pod asks to be scraped, over HTTP."""

    host: str
    port: int
    path: str
    on_host: bool = False
    """The pod has the network of its host, and is reached there on loopback, too."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of this node."""

    uid: str
    name: str
    namespace: str
    node: str = ""
    phase: str = ""
    ready: bool | None = None
    qos_class: str = ""
    start_unix_s: float | None = None
    owner: Owner = Owner()
    config_hash: str = ""
    """The uid by which the cgroups of a static pod go."""
    labels: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    page: MetricsPage | None = None

    @property
    def finished(self) -> bool:
        """Tell whether its containers have ended for good."""
        return self.phase in FINISHED

    def container(self, name: str) -> Container | None:
        """Return the container of a name."""
        return next((one for one in self.containers if one.name == name), None)


@dataclass(frozen=True, slots=True)
class Member:
    """A container in its pod, or the pod alone."""

    pod: Pod
    container: Container | None = None
