"""Debian's Prometheus as a process that scrapes one target each second, with exemplars."""

import asyncio
import contextlib
import shutil
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

BINARY = shutil.which("prometheus")

_CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: agent
    static_configs: [{{targets: ["{target}"]}}]
"""


@dataclass
class Prometheus:
    """A running server."""

    url: str
    session: aiohttp.ClientSession

    async def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an API call."""
        async with self.session.get(f"{self.url}/api/v1/{path}", params=parameters) as response:
            answer = await response.json()
        assert answer["status"] == "success", answer
        return answer["data"]

    async def query(self, promql: str) -> list[dict[str, Any]]:
        """Return the result of an instant query."""
        result: list[dict[str, Any]] = (await self.get("query", query=promql))["result"]
        return result

    async def exemplars(self, promql: str) -> list[dict[str, Any]]:
        """Return the exemplars of the last minutes."""
        now = time.time()
        found: list[dict[str, Any]] = await self.get(
            "query_exemplars", query=promql, start=str(now - 600), end=str(now + 60)
        )
        return found


@contextlib.asynccontextmanager
async def scraping(target: str, folder: Path) -> AsyncIterator[Prometheus]:
    """Run a server that scrapes host:port."""
    assert BINARY is not None
    config = folder / "prometheus.yml"
    config.write_text(_CONFIG.format(target=target))
    port = _free_port()
    log = (folder / "prometheus.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        BINARY,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
        stdout=log,
        stderr=log,
    )
    try:
        async with aiohttp.ClientSession() as session:
            server = Prometheus(f"http://127.0.0.1:{port}", session)
            await _ready(server, process)
            yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        log.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _ready(server: Prometheus, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(60):
        while process.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with server.session.get(f"{server.url}/-/ready") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)
    raise RuntimeError(f"prometheus ended with {process.returncode}")
