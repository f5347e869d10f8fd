"""Reading a dcgm-exporter that runs beside the agent, instead of asking every GPU a second time.

Its names and units are turned back into ours by the aliases of the catalogue.
"""

import http.client
import math
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent.collectors.base import NoData
from agent.errors import AgentError
from agent.gpu.identity import Identity
from agent.gpu.settings import OFF
from agent.telemetry.catalogue import gpu, gpu_health
from agent.telemetry.keys import CONTAINER_NAME, NAMESPACE, POD_NAME, POD_UID
from agent.telemetry.metric import Alias
from agent.telemetry.model import Sample

LOOPBACK = "http://127.0.0.1:9400/metrics"
_TIMEOUT_S = 1.0
_LOOK_AGAIN_S = 60.0
_MAX_BYTES = 8 << 20
_LINE = re.compile(r"(DCGM_FI_\w+)\{([^}]*)\}\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_POD_LABELS = (
    ("container", CONTAINER_NAME),
    ("namespace", NAMESPACE),
    ("pod", POD_NAME),
    ("pod_uid", POD_UID),
)
_ALIASES: dict[str, tuple[str, Alias]] = {
    alias.name: (metric.name, alias)
    for metric in (*gpu.METRICS, *gpu_health.METRICS)
    for alias in metric.aliases
}


@dataclass(frozen=True)
class Page:
    """What the exporter says, in our terms."""

    samples: list[Sample]
    by_pci: dict[str, Identity]


class DcgmExporter:
    """Reads the exporter at a URL, or the one that listens on loopback if there is one.

    One that was configured must answer; one that was found and is gone leaves the GPUs to NVML.
    """

    def __init__(
        self,
        url: str,
        now_unix_ns: Callable[[], int],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._configured = bool(url)
        self._url = url or LOOPBACK
        self._now_unix_ns = now_unix_ns
        self._monotonic_s = monotonic_s
        self._look_s = float("inf") if url == OFF else float("-inf")

    def read(self) -> Page | None:
        """Return its page, None where there is no exporter; raises `AgentError` when a configured one fails, `NoData` when it has no GPU."""
        if self._monotonic_s() < self._look_s:
            return None
        try:
            page = parse(_fetch(self._url), self._now_unix_ns())
        except (OSError, http.client.HTTPException, ValueError) as exc:
            if self._configured:
                raise AgentError(f"dcgm-exporter at {self._url} does not answer: {exc}") from exc
            page = Page([], {})
        if page.samples:
            return page
        if self._configured:
            raise NoData(f"dcgm-exporter at {self._url} tells of no GPU", remedy="check gpu_dcgm")
        self._look_s = self._monotonic_s() + _LOOK_AGAIN_S
        return None


def _fetch(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", parts.path or "/metrics")
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise ValueError(f"status {response.status}")
        body = response.read(_MAX_BYTES + 1)
    finally:
        connection.close()
    if len(body) > _MAX_BYTES:
        raise ValueError(f"more than {_MAX_BYTES} bytes")
    return body.decode(errors="replace")


def parse(text: str, time_unix_ns: int) -> Page:
    """Return the page's values in our names and units; what the catalogue does not know is left out."""
    gpus: dict[str, Identity] = {}
    samples = [
        sample for line in text.splitlines() for sample in _samples(line, time_unix_ns, gpus)
    ]
    infos = [Sample("tailcause.gpu.info", 1.0, time_unix_ns, gpu.info) for gpu in gpus.values()]
    by_pci = {gpu.address: gpu for gpu in gpus.values() if not gpu.parent}
    return Page(samples + infos if samples else [], by_pci)


def _samples(line: str, time_unix_ns: int, gpus: dict[str, Identity]) -> Iterator[Sample]:
    match = _LINE.match(line)
    if match is None or match[1] not in _ALIASES:
        return
    metric, alias = _ALIASES[match[1]]
    labels = {key: _unescaped(value) for key, value in _LABEL.findall(match[2])}
    try:
        value = float(match[3]) / alias.factor
    except ValueError:
        return
    if math.isnan(value) or not labels.get("UUID"):  # NaN, or not of a GPU
        return
    identity = _identity(labels)
    gpus.setdefault(identity.uuid, identity)
    pod = {key: labels[label] for label, key in _POD_LABELS if labels.get(label)}
    attributes = {**identity.attributes, **dict(alias.where), **pod}
    yield Sample(metric, value, time_unix_ns, attributes)


def _identity(labels: dict[str, str]) -> Identity:
    """Return the GPU or instance; the exporter tells an instance's number, not its UUID."""
    uuid, instance = labels["UUID"], labels.get("GPU_I_ID", "")
    index = labels.get("gpu", "")
    return Identity(
        index=int(index) if index.isdigit() else -1,
        uuid=f"{uuid}/{instance}" if instance else uuid,
        name=labels.get("device", ""),
        model=labels.get("modelName", ""),
        driver=labels.get("DCGM_FI_DRIVER_VERSION", ""),
        pci=labels.get("pci_bus_id", ""),
        parent=uuid if instance else "",
        profile=labels.get("GPU_I_PROFILE", ""),
        instance=instance,
    )


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], value)
