"""What the configuration says of Kubernetes."""

from dataclasses import dataclass
from pathlib import Path

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token and the cluster's CA (Kubernetes: "Service Accounts")."""
POD_RESOURCES_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
POD_RESOURCES_OFF = "off"


@dataclass(frozen=True)
class KubeletAccess:
    """How the kubelet's HTTP endpoint is reached; empty strings mean the service account's files."""

    url: str = ""
    token_file: str = ""
    ca_file: str = ""
    insecure: bool = False
    """The kubelet's certificate is not verified: most kubelets sign theirs themselves."""


@dataclass(frozen=True)
class KubeSettings:
    """Nothing is read unless the kubelet or the pod-resources socket is named."""

    kubelet: KubeletAccess = KubeletAccess()
    pod_resources: str = ""
    labels: tuple[str, ...] = ()
    """Keys of pod labels that spans get; none by default."""
    poll_s: float = 10.0
    deadline_s: float = 4.0
    """Of one answer of the kubelet, from connecting to its last byte."""
    max_pods: int = 1024
    max_body_bytes: int = 16 << 20

    @property
    def socket(self) -> Path | None:
        """Return the pod-resources socket to ask, if one is to be asked.

        With a kubelet configured its usual place is tried; it need not be there.
        """
        if self.pod_resources == POD_RESOURCES_OFF:
            return None
        if self.pod_resources:
            return Path(self.pod_resources)
        return POD_RESOURCES_SOCKET if self.kubelet.url and POD_RESOURCES_SOCKET.exists() else None

    @property
    def configured(self) -> bool:
        """Tell whether anything is to be asked."""
        return bool(self.kubelet.url) or self.socket is not None
