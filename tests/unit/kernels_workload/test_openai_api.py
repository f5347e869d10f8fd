"""Bodies in, in the shape of OpenAI's two APIs."""

import json

import pytest

from kernels.workload.openai_api import ApiError, Asked, parse_chat, parse_completion

SAY = '{"role": "user", "content": "say"}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"{}",
        b'{"prompt": 5}',
        b'{"prompt": ["a"]}',
        b'{"prompt": "a", "max_tokens": 0}',
        b'{"prompt": "a", "max_tokens": -1}',
        b'{"prompt": "a", "max_tokens": 1e99}',
        b'{"prompt": "a", "max_tokens": 123456789012345678901234567890}',
        b'{"prompt": "a", "stream": "yes"}',
        b'{"prompt": "a", "n": 2}',
        b'{"prompt": "a", "n": 0}',
        b'{"prompt": "a", "stop": ""}',
        b'{"prompt": "a", "stop": ["a", "b", "c", "d", "e"]}',
        b'{"prompt": "a", "stop": [1]}',
        b'{"prompt": "a", "stream_options": true}',
        b'{"prompt": "a", "priority": "high"}',
        b'{"prompt": "a", "guidance_scale": NaN}',
        b'{"prompt": "\xff"}',
        b"[" * 100_000,
    ],
)
def test_bad_bodies_are_refused(body: bytes) -> None:
    """Whatever cannot be read is a 400 with a message."""
    with pytest.raises(ApiError) as caught:
        parse_completion(body)
    assert caught.value.status == 400
    assert json.loads(caught.value.body())["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "messages",
    [
        "[]",
        '"hello"',
        '[{"role": "wizard", "content": "a"}]',
        '[{"content": "a"}]',
        '[{"role": "user", "content": 5}]',
        '[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]',
    ],
)
def test_bad_chats_are_refused(messages: str) -> None:
    """Chats too: unknown roles, and whatever is no text."""
    with pytest.raises(ApiError) as caught:
        parse_chat(f'{{"messages": {messages}}}'.encode())
    assert caught.value.status == 400


def test_several_answers_are_refused_with_the_reason() -> None:
    """The message says what to do instead."""
    with pytest.raises(ApiError, match=r"n=3: one answer per request"):
        parse_chat(f'{{"messages": [{SAY}], "n": 3}}'.encode())


def test_unknown_fields_are_ignored() -> None:
    """Clients may send what this server does not know."""
    asked = parse_completion(b'{"prompt": "a", "temperature": 0.7, "user": "tenant-0001"}')
    assert (asked.prompt, asked.max_tokens, asked.sampling.user) == ("a", 16, "tenant-0001")


@pytest.mark.parametrize(
    ("stop", "stops"), [("null", ()), ('"END"', ("END",)), ('["a", "b"]', ("a", "b"))]
)
def test_stop_sequences_come_alone_or_in_a_list(stop: str, stops: tuple[str, ...]) -> None:
    """OpenAI takes both."""
    assert parse_completion(f'{{"prompt": "a", "stop": {stop}}}'.encode()).stops == stops


def chat(messages: str, rest: str = "") -> Asked:
    """Read a chat."""
    return parse_chat(f'{{"messages": {messages}{rest}}}'.encode())


def test_a_chat_is_a_line_per_turn() -> None:
    """The prompt ends where the answer begins; parts of a message are joined."""
    parts = '[{"type": "text", "text": "what "}, {"type": "text", "text": "now?"}]'
    asked = chat(
        f'[{{"role": "system", "content": "Be brief."}}, {{"role": "user", "content": {parts}}}]'
    )
    assert asked.prompt == "system:Be brief.\nuser:what now?\nassistant:"


def test_a_chat_that_goes_on_begins_with_the_one_before() -> None:
    """Prompt and answer of a turn are the beginning of the next one: the prefix cache has them."""
    first = chat(f"[{SAY}]").prompt
    second = chat(f'[{SAY}, {{"role": "assistant", "content": "said"}}, {SAY}]').prompt
    assert second.startswith(first + "said")


@pytest.mark.parametrize(
    ("rest", "limit"),
    [
        ("", None),
        (', "max_tokens": 5', 5),
        (', "max_completion_tokens": 7', 7),
        (', "max_tokens": 5, "max_completion_tokens": 7', 7),
    ],
)
def test_the_limit_of_a_chat_has_two_names(rest: str, limit: int | None) -> None:
    """The newer name wins; without either there is none."""
    assert chat(f"[{SAY}]", rest).max_tokens == limit
