"""Other clients than the usual ones: their lengths, their tenant, their patience."""

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kernels.load.azure import CONVERSATION
from kernels.load.client import Client, Patience
from kernels.load.plan import PlanConfig, Planned, plan
from kernels.load.shape import Target
from kernels.load.source import Lengths, TableSource
from kernels.load.tally import Answer, Outcome, Tally

ASK = Planned(0.0, "prompt", 3, "tenant-0001")


def test_lengths_are_brought_to_what_is_asked_for() -> None:
    """Prompts and answers keep to their range."""
    lengths = Lengths(Target(240, 300, 380), Target(60, 90, 140))
    requests = list(plan(PlanConfig(20.0, 30.0, seed=1), TableSource(CONVERSATION, lengths)))

    assert all(240 <= len(request.prompt) <= 380 for request in requests)
    assert all(60 <= request.max_tokens <= 140 for request in requests)


def test_one_tenant_can_send_everything_and_repeat_nothing() -> None:
    """No mix, and nothing that a cache could know."""
    config = PlanConfig(20.0, 60.0, seed=1, repeat_share=0.0, tenant="tenant-0042")
    requests = list(plan(config, TableSource(CONVERSATION)))

    assert {request.tenant for request in requests} == {"tenant-0042"}
    assert len({request.prompt for request in requests}) == len(requests)


def test_prompts_can_share_their_beginnings() -> None:
    """One of eight, then what is their own; every run has the same ones."""
    config = PlanConfig(20.0, 60.0, seed=1, repeat_share=0.0, prefix_tokens=64)
    requests = list(plan(config, TableSource(CONVERSATION)))

    assert len({request.prompt[:64] for request in requests}) == 8
    assert len({request.prompt for request in requests}) == len(requests)
    other = next(iter(plan(replace(config, seed=2), TableSource(CONVERSATION))))
    assert other.prompt[:64] in {request.prompt[:64] for request in requests}


async def ask(slow_attempts: int, patience: Patience) -> tuple[Answer, int]:
    """Ask a server that is too slow for the first attempts; the answer and the attempts that it saw."""
    seen = 0

    async def handler(_: web.Request) -> web.Response:
        nonlocal seen
        seen += 1
        if seen <= slow_attempts:
            await asyncio.sleep(60)
        return web.Response(text="data: [DONE]\n\n")

    app = web.Application()
    app.router.add_post("/v1/completions", handler)
    async with TestServer(app) as server, Client(str(server.make_url("/")), patience) as client:
        return await client.send(ASK), seen


async def test_a_time_out_is_followed_by_another_attempt() -> None:
    """The latency is that of all attempts together."""
    answer, seen = await ask(2, Patience(timeout_s=0.5, retries=5))

    assert (answer.outcome, answer.attempts, seen) == (Outcome.OK, 3, 3)
    assert answer.total_s >= 1.0


async def test_attempts_are_limited() -> None:
    """The last time-out is the request's failure."""
    answer, seen = await ask(9, Patience(timeout_s=0.2, retries=1))

    assert answer == Answer(Outcome.FAILED, reason="timed out", attempts=2)
    assert seen == 2


async def test_what_is_refused_is_not_tried_again() -> None:
    """Only a time-out is."""
    async with Client("http://127.0.0.1:9", Patience(5.0, retries=3)) as client:
        answer = await client.send(ASK)

    assert (answer.outcome, answer.attempts) == (Outcome.FAILED, 1)


def test_attempts_are_counted() -> None:
    """The summary tells how many were made on top."""
    tally = Tally()
    tally.add(Answer(Outcome.OK, 0.1, 0.2, attempts=3), at_s=1.0)
    tally.add(Answer(Outcome.FAILED, reason="timed out", attempts=2), at_s=1.0)

    assert tally.summary()["retries"] == 3


@pytest.mark.parametrize(
    "words",
    [
        ("--prompt-tokens", "1:2"),
        ("--prompt-tokens", "9:2:3"),
        ("--output-tokens", "a:b:c"),
        ("--repeat-share", "2"),
        ("--retries", "-1"),
        ("--timeout", "0s"),
    ],
)
def test_a_mix_that_makes_no_sense_is_refused(words: tuple[str, ...]) -> None:
    """Exit code 2 and no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "kernels.cli", "load", "--url", "http://127.0.0.1:9", *words],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
