"""Answers out, in the shape of OpenAI's two APIs."""

import json

from kernels.workload.openai_answers import CHAT, COMPLETIONS, Answer, Usage

TEXT = Answer(COMPLETIONS, "cmpl-1", 1_700_000_000, "tiny")
TURN = Answer(CHAT, "chatcmpl-1", 1_700_000_000, "tiny")
USAGE = Usage(prompt=32, completion=2, cached=16)


def data(event: bytes) -> dict[str, object]:
    """Read the data of a server-sent event."""
    body: dict[str, object] = json.loads(event.removeprefix(b"data: "))
    return body


def test_a_completion_has_text_and_usage() -> None:
    """The whole answer is what OpenAI's clients read."""
    body = json.loads(TEXT.whole("hi", "length", USAGE))
    assert body == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "tiny",
        "choices": [{"index": 0, "text": "hi", "logprobs": None, "finish_reason": "length"}],
        "usage": {
            "prompt_tokens": 32,
            "completion_tokens": 2,
            "total_tokens": 34,
            "prompt_tokens_details": {"cached_tokens": 16},
        },
    }


def test_a_chat_has_a_message() -> None:
    """The same for chats."""
    body = json.loads(TURN.whole("hi", "stop", USAGE))
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "hi"}


def test_the_first_delta_of_a_chat_says_who_speaks() -> None:
    """Later ones carry content alone."""
    first = data(TURN.piece("h", "", first=True))
    later = data(TURN.piece("i", "stop", first=False))
    assert first["choices"] == [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": "h"},
            "logprobs": None,
            "finish_reason": None,
        }
    ]
    assert later["choices"] == [
        {"index": 0, "delta": {"content": "i"}, "logprobs": None, "finish_reason": "stop"}
    ]
    assert first["object"] == "chat.completion.chunk"


def test_a_stream_ends_with_done() -> None:
    """Usage comes only when asked for, without choices."""
    assert TEXT.end(None) == b"data: [DONE]\n\n"
    usage, done, _ = TEXT.end(USAGE).split(b"\n\n")
    assert (data(usage)["choices"], data(usage)["usage"]) == ([], USAGE.body())
    assert done == b"data: [DONE]"
