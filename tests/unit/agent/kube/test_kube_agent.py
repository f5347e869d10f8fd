"""The running agent names the pod of every span and container, from a kubelet over HTTPS and gRPC."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from tests.support import kubelet as http_double
from tests.support import kubelet_devices as grpc_double
from tests.support.kubelet import TOKEN, Behaviour
from tests.support.kubelet_devices import Service, container, devices, pod_resources
from tests.support.kubelet_pods import container_id, pod
from tests.support.otlp_collector import Collector, collecting

GPU = "GPU-00000000-0000-0000-0000-000000000000"


@contextlib.asynccontextmanager
async def agent(*flags: str) -> AsyncIterator[tuple[str, str]]:
    """Run an agent; yield its address for spans and its metrics page."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agent.cli", "run", "--otlp-port", "0", "--metrics-port", "0"),
        *("--interval", "200ms", "--deadline", "30s", "--no-ebpf", *flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        address = "http://127.0.0.1:{}"
        metrics = f"{address.format(ready['metrics_port'])}/metrics"
        yield address.format(ready["otlp_port"]), metrics
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


def spans_of(container: str) -> dict[str, object]:
    """Return an OTLP/JSON request of one span that names its container."""
    resource = [{"key": "container.id", "value": {"stringValue": container}}]
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "x"}
    scope = {"spans": [span]}
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [scope]}]}


async def scraped(session: aiohttp.ClientSession, url: str, wanted: str) -> str:
    """Return the line that begins so, once the metrics page has it."""
    async with asyncio.timeout(60):
        while True:
            async with session.get(url) as response:
                lines = (await response.text()).splitlines()
            if found := [line for line in lines if line.startswith(wanted)]:
                return found[0]
            await asyncio.sleep(0.1)


async def described(session: aiohttp.ClientSession, url: str, collector: Collector) -> None:
    """Send a span and wait until it has come out."""
    seen = len(collector.spans)
    async with session.post(f"{url}/v1/traces", json=spans_of(container_id("vllm-a"))) as response:
        assert response.status == 200
    async with asyncio.timeout(60):
        while len(collector.spans) == seen:  # noqa: ASYNC110  the collector is another's
            await asyncio.sleep(0.02)


async def test_agent_names_pods(tmp_path: Path) -> None:
    """Spans leave with pod, deployment, image and GPU; the scrape has restarts, limits and who has the GPU."""
    socket = tmp_path / "kubelet.sock"
    (tmp_path / "token").write_text(TOKEN)
    given = container("server", [devices("nvidia.com/gpu", [GPU])])
    with (
        http_double.serving(tmp_path, Behaviour([pod("vllm-a")])) as kubelet,
        grpc_double.serving(socket, Service([pod_resources("vllm-a", [given])])),
    ):
        flags = (
            *("--kubelet", kubelet.url, "--kube-token-file", str(tmp_path / "token")),
            *("--kube-ca-file", str(kubelet.ca_file), "--kube-pod-resources", str(socket)),
            *("--kube-labels", "app,team"),
        )
        async with (
            collecting() as collector,
            agent("--forward", collector.url, "--export", "off", *flags) as (otlp, metrics),
            aiohttp.ClientSession() as session,
        ):
            line = await scraped(session, metrics, "tailcause_gpu_assignment_ratio{")
            assert 'k8s_pod_name="vllm-a"' in line
            assert f'hw_id="{GPU}"' in line
            assert await scraped(session, metrics, "k8s_container_restart_count{")
            assert await scraped(session, metrics, "k8s_container_cpu_limit_desired{")
            assert await scraped(
                session, metrics, 'tailcause_kube_age_seconds{tailcause_kube_source="kubelet"}'
            )
            await described(session, otlp, collector)
    told = collector.resource
    assert told["k8s.pod.name"] == "vllm-a"
    assert told["k8s.deployment.name"] == "vllm"
    assert told["k8s.pod.label.team"] == "search"
    assert told["container.image.name"] == "registry.local:5000/team/vllm"
    assert "tailcause.gpu.ids" in told
