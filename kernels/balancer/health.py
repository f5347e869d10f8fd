"""Asks every replica at intervals whether it is healthy."""

import asyncio

import aiohttp

from kernels.balancer.backends import Backend

INTERVAL_S = 0.5
TIMEOUT_S = 1.0


async def watch(backend: Backend, session: aiohttp.ClientSession) -> None:
    """Check one replica until cancelled."""
    while True:
        reason = await _check(backend, session)
        backend.note(well=not reason, reason=reason)
        await asyncio.sleep(INTERVAL_S)


async def _check(backend: Backend, session: aiohttp.ClientSession) -> str:
    """Name what is wrong, or nothing."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with session.get(f"{backend.url}/healthz", timeout=timeout) as response:
            return "" if response.status == 200 else f"status {response.status}"
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return type(error).__name__
