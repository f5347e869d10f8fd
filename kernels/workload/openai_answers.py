"""How OpenAI's completions and chat APIs answer: in one piece, or as server-sent events."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from kernels.workload.openai_api import Parse, parse_chat, parse_completion

Choice = Mapping[str, object]


@dataclass(frozen=True)
class Api:
    """One of the two: where it is, what it is called, how it is read and how its answers look.

    `whole` makes the content of a choice out of a text, `piece` that of an event; the flag marks the first event.
    """

    route: str
    operation: str
    prefix: str
    parse: Parse
    whole_object: str
    event_object: str
    whole: Callable[[str], Choice]
    piece: Callable[[str, bool], Choice]


def _message(text: str) -> Choice:
    return {"message": {"role": "assistant", "content": text}}


def _delta(text: str, first: bool) -> Choice:
    return {"delta": {"role": "assistant", "content": text} if first else {"content": text}}


COMPLETIONS = Api(
    route="/v1/completions",
    operation="text_completion",
    prefix="cmpl",
    parse=parse_completion,
    whole_object="text_completion",
    event_object="text_completion",
    whole=lambda text: {"text": text},
    piece=lambda text, _: {"text": text},
)
CHAT = Api(
    route="/v1/chat/completions",
    operation="chat",
    prefix="chatcmpl",
    parse=parse_chat,
    whole_object="chat.completion",
    event_object="chat.completion.chunk",
    whole=_message,
    piece=_delta,
)
APIS = (COMPLETIONS, CHAT)


@dataclass(frozen=True)
class Usage:
    """Tokens of a request; `cached` of the prompt were not computed anew."""

    prompt: int
    completion: int
    cached: int = 0

    def body(self) -> dict[str, object]:
        """Shape it as OpenAI does."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


@dataclass(frozen=True)
class Answer:
    """What all parts of one answer share."""

    api: Api
    id: str
    created_s: int
    model: str

    def whole(self, text: str, finish: str, usage: Usage) -> bytes:
        """Body of a whole answer."""
        choice = self._choice(self.api.whole(text), finish)
        return msgspec.json.encode(
            {**self._head(self.api.whole_object), "choices": [choice], "usage": usage.body()}
        )

    def piece(self, text: str, finish: str, *, first: bool) -> bytes:
        """One server-sent event of a streamed answer."""
        choice = self._choice(self.api.piece(text, first), finish or None)
        return event(
            msgspec.json.encode({**self._head(self.api.event_object), "choices": [choice]})
        )

    def end(self, usage: Usage | None) -> bytes:
        """Return the end of a stream, after its usage when that was asked for."""
        done = event(b"[DONE]")
        if usage is None:
            return done
        body = {**self._head(self.api.event_object), "choices": [], "usage": usage.body()}
        return event(msgspec.json.encode(body)) + done

    def _head(self, kind: str) -> dict[str, object]:
        return {"id": self.id, "object": kind, "created": self.created_s, "model": self.model}

    def _choice(self, content: Choice, finish: str | None) -> dict[str, object]:
        return {"index": 0, **content, "logprobs": None, "finish_reason": finish}


def event(data: bytes) -> bytes:
    """Frame one server-sent event."""
    return b"data: " + data + b"\n\n"
