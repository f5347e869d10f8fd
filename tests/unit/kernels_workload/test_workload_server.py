"""The server over real HTTP, in a process of its own."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.workload_process import Server, serving

CHAT = "/v1/chat/completions"
SLOW = ("layers=4", "hidden=256", "heads=4")
LONG = {"prompt": "a long one " * 20, "max_tokens": 200, "user": "tenant-0001"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server for the tests that leave it as it was."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """Return a client that opens a connection per request."""
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield session


async def ask(
    client: aiohttp.ClientSession, server: Server, body: object
) -> tuple[int, dict[str, object]]:
    """POST a completion; status and JSON of the answer."""
    return await ask_at(client, server, "/v1/completions", body)


async def ask_at(
    client: aiohttp.ClientSession, server: Server, route: str, body: object
) -> tuple[int, dict[str, object]]:
    """POST to one of the APIs; status and JSON of the answer."""
    async with client.post(server.url + route, json=body) as response:
        answer: dict[str, object] = await response.json()
        return response.status, answer


def text_of(answer: dict[str, object]) -> object:
    """Return the completion's text."""
    choices = answer["choices"]
    assert isinstance(choices, list)
    return choices[0]["text"]


async def events_of(response: aiohttp.ClientResponse) -> list[str]:
    """Read the data of all events of a stream."""
    text = (await response.read()).decode()
    return [event.removeprefix("data: ") for event in text.split("\n\n") if event]


async def until_running(
    client: aiohttp.ClientSession, server: Server, fits: Callable[[float], bool]
) -> None:
    """Wait until the number of running requests fits."""
    while not fits(await running(client, server)):  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.01)


async def running(client: aiohttp.ClientSession, server: Server) -> float:
    """Read the number of running requests from /metrics."""
    async with client.get(f"{server.url}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
        return next(
            one.samples[0].value for one in families if one.name == "vllm:num_requests_running"
        )


async def test_a_whole_answer(client: aiohttp.ClientSession, server: Server) -> None:
    """A completion has as many tokens as asked for, in OpenAI's shape."""
    status, answer = await ask(
        client, server, {"prompt": "Hello", "max_tokens": 7, "user": "tenant-0003"}
    )
    assert (status, answer["object"]) == (200, "text_completion")
    assert answer["usage"] == {
        "prompt_tokens": 6,
        "completion_tokens": 7,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert len(str(text_of(answer))) == 7


async def test_a_repeated_prompt_gets_the_same_answer(
    client: aiohttp.ClientSession, server: Server
) -> None:
    """The prompt cache gives what the engine gave."""
    answers = [await ask(client, server, {"prompt": "again", "max_tokens": 9}) for _ in range(2)]
    assert text_of(answers[0][1]) == text_of(answers[1][1])


@pytest.mark.parametrize("prompt", ["streamed", "", "grün € 💡"])
async def test_a_stream_carries_the_same_text(
    client: aiohttp.ClientSession, server: Server, prompt: str
) -> None:
    """Streamed pieces join to the text of the whole answer, then [DONE]."""
    body = {"prompt": prompt, "max_tokens": 8}
    async with client.post(
        f"{server.url}/v1/completions", json={**body, "stream": True}
    ) as response:
        *chunks, done = await events_of(response)
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert "".join(choice["text"] for choice in choices) == text_of(
        (await ask(client, server, body))[1]
    )
    assert [choice["finish_reason"] for choice in choices] == [None] * 7 + ["length"]
    assert done == "[DONE]"


async def test_a_chat(client: aiohttp.ClientSession, server: Server) -> None:
    """A chat is answered with a message; without a limit up to the tenant's."""
    turns = [{"role": "system", "content": "Short."}, {"role": "user", "content": "Hello"}]
    status, answer = await ask_at(client, server, CHAT, {"messages": turns, "max_tokens": 9})
    choices = answer["choices"]
    assert isinstance(choices, list)
    assert (status, choices[0]["finish_reason"]) == (200, "length")
    assert len(choices[0]["message"]["content"]) == 9
    status, answer = await ask_at(client, server, CHAT, {"messages": turns})
    assert isinstance(answer["usage"], dict)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 256)


async def test_a_streamed_chat_carries_the_same_text(
    client: aiohttp.ClientSession, server: Server
) -> None:
    """Deltas join to the message; the usage comes before [DONE] when it is asked for."""
    body = {"messages": [{"role": "user", "content": "stream"}], "max_tokens": 8}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    async with client.post(server.url + CHAT, json={**body, **options}) as response:
        *chunks, usage, done = await events_of(response)
    deltas = [json.loads(chunk)["choices"][0]["delta"] for chunk in chunks]
    _, whole = await ask_at(client, server, CHAT, body)
    assert isinstance(whole["choices"], list)
    assert (
        "".join(delta["content"] for delta in deltas) == whole["choices"][0]["message"]["content"]
    )
    assert json.loads(usage)["usage"]["completion_tokens"] == 8
    assert done == "[DONE]"


async def test_a_stop_sequence_ends_every_kind_of_answer(
    client: aiohttp.ClientSession, server: Server
) -> None:
    """Whole, streamed, and from the prompt cache: the text ends before the stop sequence, and says why."""
    body = {"prompt": "where to stop", "max_tokens": 12}
    text = str(text_of((await ask(client, server, body))[1]))
    expected = (text[: text.index(text[5:7])], "stop")
    body["stop"] = [text[5:7], "never said"]
    for _ in range(2):
        async with client.post(
            f"{server.url}/v1/completions", json={**body, "stream": True}
        ) as response:
            *chunks, _ = await events_of(response)
        choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
        assert expected == (
            "".join(choice["text"] for choice in choices),
            choices[-1]["finish_reason"],
        )
        whole = (await ask(client, server, body))[1]["choices"]
        assert isinstance(whole, list)
        assert expected == (whole[0]["text"], whole[0]["finish_reason"])


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"prompt": "a", "n": 2}', 400, "unsupported_n"),
        (b"not json", 400, "invalid_body"),
        (b'{"prompt": 1}', 400, "invalid_body"),
        (b'{"prompt": "a", "max_tokens": 100000}', 400, "context_length_exceeded"),
        (
            b'{"prompt": "a", "max_tokens": 123456789012345678901234567890}',
            400,
            "invalid_body",
        ),
        (json.dumps({"prompt": "a" * 600_000}).encode(), 400, "context_length_exceeded"),
        (json.dumps({"prompt": "a" * 1_100_000}).encode(), 413, "body_too_large"),
        (b'{"prompt": "a", "model": "another"}', 404, "model_not_found"),
    ],
)
async def test_refusals(
    client: aiohttp.ClientSession, server: Server, body: bytes, status: int, code: str
) -> None:
    """Whatever cannot be answered gets an OpenAI-style error with its own status."""
    async with client.post(f"{server.url}/v1/completions", data=body) as response:
        error = (await response.json())["error"]
    assert (response.status, error["code"]) == (status, code)


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/v1/completions", 405)]
)
async def test_wrong_addresses(
    client: aiohttp.ClientSession, server: Server, method: str, path: str, status: int
) -> None:
    """Errors outside the API have the same shape."""
    async with client.request(method, server.url + path) as response:
        assert (response.status, set((await response.json())["error"])) == (
            status,
            {"message", "type", "param", "code"},
        )


async def test_health(client: aiohttp.ClientSession, server: Server) -> None:
    """A server that has announced itself is healthy."""
    async with client.get(f"{server.url}/healthz") as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})


async def test_a_full_queue_answers_429(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """Beyond the queue, requests are refused with Retry-After; the others are answered."""
    with serving(tmp_path, *SLOW, "max_running=1", "max_queue=1", "prompt_cache=0") as server:

        async def one() -> tuple[int, str]:
            async with client.post(f"{server.url}/v1/completions", json=LONG) as response:
                await response.read()
                return response.status, response.headers.get("Retry-After", "")

        outcomes = set(await asyncio.gather(*(one() for _ in range(30))))
    assert outcomes == {(200, ""), (429, "1")}


async def test_slow_bodies_hold_no_place(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """Clients that never finish their body do not keep others out."""
    with serving(tmp_path, "max_running=1", "max_queue=0") as server:
        port = int(server.url.rsplit(":", 1)[1])
        head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in held:
            writer.write(head)
            await writer.drain()
        status, _ = await ask(client, server, {"prompt": "me", "max_tokens": 2})
        for _, writer in held:
            writer.close()
    assert status == 200


async def test_a_disconnect_frees_the_engine(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """When the client goes away the engine forgets the request, the log says so, and others notice nothing."""
    with serving(tmp_path, *SLOW) as server:
        async with client.post(
            f"{server.url}/v1/completions", json={**LONG, "stream": True}
        ) as response:
            await response.content.readany()
            other = asyncio.create_task(ask(client, server, {"prompt": "other", "max_tokens": 99}))
            await until_running(client, server, lambda count: count == 2)
        status, _ = await other
        await until_running(client, server, lambda count: count == 0)
        logged = {event["status"] for event in server.log_events() if event["event"] == "request"}
    assert (status, logged) == (200, {200, 499})


async def test_sigterm_finishes_what_runs(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """After SIGTERM nothing new is accepted, running streams end whole, and the exit code is 0."""
    with serving(tmp_path, *SLOW, "drain_s=30") as server:
        async with client.post(
            f"{server.url}/v1/completions", json={**LONG, "stream": True}
        ) as response:
            await response.content.readany()
            server.process.send_signal(signal.SIGTERM)
            rest = await events_of(response)
        with pytest.raises(aiohttp.ClientConnectorError):
            await ask(client, server, {"prompt": "too late"})
        assert rest[-1] == "[DONE]"
        assert await asyncio.to_thread(server.process.wait, 30) == 0


async def test_requests_beyond_the_drain_limit_are_cut(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """A drain does not wait for ever: what is left is cut, counted and the process ends."""
    queue = ("max_running=1", "max_queue=30", "prompt_cache=0", "drain_s=0")
    with serving(tmp_path, *SLOW, *queue) as server:
        flood = [asyncio.create_task(ask(client, server, LONG)) for _ in range(30)]
        await until_running(client, server, lambda count: count >= 1)
        server.process.send_signal(signal.SIGTERM)
        outcomes = await asyncio.gather(*flood, return_exceptions=True)
        assert await asyncio.to_thread(server.process.wait, 30) == 0
    assert any(isinstance(outcome, aiohttp.ClientError) for outcome in outcomes)
    assert server.log_events()[-1]["event"] == "stopped"
