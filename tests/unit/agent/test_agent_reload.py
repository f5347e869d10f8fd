"""A running agent follows its file at SIGHUP, keeps what it had when the file is bad, and loses no span."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from agent.config import Config
from agent.config_load import load
from agent.errors import CannotStartError, ConfigError
from agent.notify import Notifier
from agent.reload import LIVE, Reloader, plan
from tests.support.running_agent import Agent, Backend, agent, backend

Until = Callable[[Callable[[], object]], Awaitable[None]]


def test_plan_parts_what_is_live_from_what_needs_a_restart() -> None:
    """Settings that can be followed are; the others keep their value and are named."""
    old = load(None, {}, {"interval": "1s", "otlp_port": "1"})
    new = load(None, {}, {"interval": "2s", "otlp_port": "2", "forward": "http://a:1"})
    found = plan(old, new)
    assert found.live == ("forward", "interval")
    assert found.needs_restart == ("otlp_port",)
    assert (found.config.interval, found.config.otlp_port) == (2.0, 1)


def test_live_settings_exist() -> None:
    """The list of settings that are followed names settings."""
    assert set(Config.__struct_fields__) >= LIVE


async def reloads(until: Until, load: Callable[[], Config], applied: list[Config]) -> Reloader:
    """Ask for one reload and wait for its outcome."""

    async def apply(config: Config) -> None:
        if config.forward == "http://bad:1":
            raise CannotStartError("TLS: no such file")
        applied.append(config)

    reloader = Reloader(Config(), load, apply, Notifier())
    running = asyncio.create_task(reloader.run())
    reloader.ask()
    await until(lambda: reloader.outcomes)
    running.cancel()
    return reloader


@pytest.mark.parametrize(
    ("flags", "outcome"),
    [
        ({}, "unchanged"),
        ({"metrics_port": "1"}, "unchanged"),
        ({"interval": "2s"}, "applied"),
        ({"forward": "http://bad:1"}, "refused"),
        ({"interval": "soon"}, "refused"),
    ],
)
async def test_outcomes(until: Until, flags: dict[str, str], outcome: str) -> None:
    """What cannot be read or applied is refused, what changes nothing is told apart."""
    applied: list[Config] = []
    reloader = await reloads(until, lambda: load(None, {}, dict(flags)), applied)
    assert reloader.outcomes == {outcome: 1}
    assert bool(applied) == (outcome == "applied")
    assert (reloader.config == Config()) == (outcome != "applied")


async def test_refusal_is_one_line(until: Until, caplog: pytest.LogCaptureFixture) -> None:
    """The log says why, and that the old configuration holds."""

    def broken() -> Config:
        raise ConfigError("unknown key 'intervl'; did you mean 'interval'?")

    await reloads(until, broken, [])
    [record] = caplog.records
    assert record.getMessage().startswith("event=reload_refused why=")
    assert "did you mean" in record.getMessage()
    assert "\n" not in record.getMessage()


@contextlib.asynccontextmanager
async def configured(file: Path, *flags: str) -> AsyncIterator[Agent]:
    """Run an agent with a configuration file."""
    state = str(file.parent / "state")
    async with agent("--config", str(file), *flags, env={"TAILCAUSE_STATE": state}) as running:
        yield running


async def reload(running: Agent, event: str) -> str:
    """Send SIGHUP and return the line of the log that tells what came of it."""
    running.process.send_signal(signal.SIGHUP)
    assert running.process.stderr is not None
    async with asyncio.timeout(30):
        while True:
            line = (await running.process.stderr.readline()).decode()
            assert line, "the agent has ended"
            if event in line:
                return line


def span_request(number: int) -> dict[str, object]:
    """Return an OTLP/JSON request of one span."""
    span = {"traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": f"span {number}"}
    span["attributes"] = [{"key": "gen_ai.prompt", "value": {"stringValue": "secret"}}]  # type: ignore[assignment]
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


async def send(session: aiohttp.ClientSession, running: Agent, number: int) -> None:
    """Send a span, which must be accepted."""
    url = f"{running.otlp}/v1/traces"
    async with session.post(url, json=span_request(number)) as response:
        assert response.status == 200
        assert not (await response.json()).get("partialSuccess")


def names(*backends: Backend) -> list[str]:
    """Return the names of the spans that arrived anywhere."""
    return sorted(span.name for one in backends for span in one.spans)


async def test_end_point_and_redaction_change_without_loss(tmp_path: Path, until: Until) -> None:
    """While spans flow, the back end changes and redaction ends: each span arrives once, at one of the two."""
    file = tmp_path / "agent.toml"
    async with backend() as old, backend() as new:
        file.write_text(f'forward = "{old.url}"\n')
        async with configured(file) as running, aiohttp.ClientSession() as session:
            sent = 0

            async def flow() -> None:
                nonlocal sent
                while True:
                    await send(session, running, sent + 1)
                    sent += 1
                    await asyncio.sleep(0.002)

            flowing = asyncio.create_task(flow())
            await until(lambda: len(old.spans) > 20)
            file.write_text(f'forward = "{new.url}"\nredact = false\n')
            line = await reload(running, "event=reload_applied")
            assert "redact=False" in line
            await until(lambda: len(new.spans) > 20)
            flowing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await flowing
            assert await running.end() == 0
        # the request under way when the flow ended may have been taken
        arrived = names(old, new)
        assert len(arrived) == len(set(arrived))
        assert {f"span {number}" for number in range(1, sent + 1)} <= set(arrived)
        assert old.spans[0].attributes["gen_ai.prompt"] == "REDACTED"
        assert new.spans[-1].attributes["gen_ai.prompt"] == "secret"


async def test_what_a_dead_back_end_has_not_taken_goes_to_the_new_one(
    tmp_path: Path, until: Until
) -> None:
    """Without a spool, what waits in memory follows the new address."""
    file = tmp_path / "agent.toml"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
        async with backend() as new:
            file.write_text(f'forward = "{dead}"\nspool_bytes = 0\n')
            async with configured(file) as running, aiohttp.ClientSession() as session:
                for number in range(5):
                    await send(session, running, number + 1)
                file.write_text(f'forward = "{new.url}"\nspool_bytes = 0\n')
                await reload(running, "event=reload_applied")
                await until(lambda: len(new.spans) >= 5)
                assert await running.end() == 0
            assert names(new) == [f"span {number}" for number in range(1, 6)]


async def test_bad_file_keeps_the_old_settings(tmp_path: Path, until: Until) -> None:
    """A mistake is told and counted, and spans go on where they went; a later good file is taken."""
    file = tmp_path / "agent.toml"
    async with backend() as served:
        file.write_text(f'forward = "{served.url}"\n')
        async with configured(file) as running, aiohttp.ClientSession() as session:
            file.write_text(f'forward = "{served.url}"\nintervl = "1s"\n')
            assert "did you mean 'interval'" in await reload(running, "event=reload_refused")
            await send(session, running, 1)
            await until(lambda: served.spans)
            file.write_text(f'forward = "{served.url}"\notlp_port = 1\n')
            assert "otlp_port" not in await reload(running, "event=reload_unchanged")  # a flag wins
            file.write_text(f'forward = "{served.url}"\nlisten = "::1"\nredact = false\n')
            assert "keys=listen" in await reload(running, "event=reload_needs_restart")

            def outcomes() -> dict[object, float]:
                found = served.values("tailcause.config.reloads")
                return {point.attributes["outcome"]: point.value for point in found}

            await until(lambda: outcomes() == {"refused": 1, "unchanged": 1, "applied": 1})


async def test_signals_come_and_go(tmp_path: Path, until: Until) -> None:
    """A signal that is disabled loses its values and says so; enabled again it is collected at once."""
    file = tmp_path / "agent.toml"
    async with backend() as served:
        file.write_text(f'export = "{served.url}"\n')
        async with configured(file) as running:

            def latest() -> tuple[object, bool]:
                """Return the last state of the signal `memory`, and whether its values come now."""
                states = [
                    point
                    for point in served.values("tailcause.signal.state")
                    if point.attributes["tailcause.signal.name"] == "memory"
                ]
                values = served.values("system.memory.limit")
                if not states:
                    return None, False
                newest = states[-1].time_unix_ns
                fresh = bool(values) and newest - values[-1].time_unix_ns < 1_000_000_000
                return states[-1].attributes["tailcause.signal.state"], fresh

            await until(lambda: latest() == ("ok", True))
            file.write_text(f'export = "{served.url}"\ndisable = ["memory"]\n')
            await reload(running, "event=reload_applied")
            await until(lambda: latest() == ("disabled", False))
            file.write_text(f'export = "{served.url}"\n')
            await reload(running, "event=reload_applied")
            await until(lambda: latest() == ("ok", True))
            assert await running.end() == 0


async def test_sigterm_during_a_reload_ends_the_agent(tmp_path: Path, until: Until) -> None:
    """A reload that waits for a dead back end does not hold up the end."""
    file = tmp_path / "agent.toml"

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with backend() as new:
        file.write_text(f'forward = "{url}"\nexport = "off"\n')
        async with configured(file) as running, aiohttp.ClientSession() as session:
            await send(session, running, 1)
            file.write_text(f'forward = "{new.url}"\nexport = "off"\n')
            running.process.send_signal(signal.SIGHUP)
            await asyncio.sleep(0.3)
            assert await running.end() == 0
    server.close()
