"""Servers in pods of this node, by the annotations that Prometheus' users put on pods.

Nothing is asked but the pods that the kubelet lists for this node.
"""

from collections.abc import Iterable, Iterator

from agent.kube.model import Pod
from agent.servers.settings import Target

_LOOPBACK = "127.0.0.1"


def targets(pods: Iterable[Pod], *, on_host: bool) -> Iterator[Target]:
    """Yield the pages of the running pods that ask to be scraped.

    `on_host` says whether the agent is in the host's network: pods that are there, too, are reached on loopback, so
    that who is found by annotation and by port is one server.
    """
    for pod in pods:
        page = pod.page
        if page is None or pod.finished:
            continue
        address = _LOOPBACK if page.on_host and on_host else page.host
        host = f"[{address}]" if ":" in address else address
        yield Target(f"http://{host}:{page.port}{page.path}", pod=(pod.namespace, pod.name))
