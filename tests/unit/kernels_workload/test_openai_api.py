"""Bodies in and out, in OpenAI's shape."""

import json

import pytest

from kernels.workload.openai_api import Answer, ApiError, chunk, completion, last_chunks, parse

ANSWER = Answer("cmpl-1", 1_700_000_000, "tiny")


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
        b'{"prompt": "a", "stream": "yes"}',
        b'{"prompt": "a", "n": 2}',
        b'{"prompt": "\xff"}',
        b"[" * 100_000,
    ],
)
def test_bad_bodies_are_refused(body: bytes) -> None:
    """Whatever cannot be read is a 400 with a message."""
    with pytest.raises(ApiError) as caught:
        parse(body)
    assert caught.value.status == 400
    assert json.loads(caught.value.body())["error"]["type"] == "invalid_request_error"


def test_unknown_fields_are_ignored() -> None:
    """Clients may send what this server does not know."""
    asked = parse(b'{"prompt": "a", "temperature": 0.7, "user": "tenant-0001"}')
    assert (asked.prompt, asked.max_tokens, asked.user) == ("a", 16, "tenant-0001")


def test_a_completion_has_text_and_usage() -> None:
    """The whole answer is what OpenAI's clients read."""
    body = json.loads(completion(ANSWER, "hi", "length", (3, 2)))
    assert body["choices"] == [
        {"index": 0, "text": "hi", "logprobs": None, "finish_reason": "length"}
    ]
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_a_stream_ends_with_done() -> None:
    """Events are `data:` lines; usage comes only when asked for."""
    assert json.loads(chunk(ANSWER, "h", "")[6:])["choices"][0]["finish_reason"] is None
    assert last_chunks(ANSWER, None) == b"data: [DONE]\n\n"
    usage, done, _ = last_chunks(ANSWER, (3, 2)).split(b"\n\n")
    assert json.loads(usage[6:])["usage"]["total_tokens"] == 5
    assert done == b"data: [DONE]"
