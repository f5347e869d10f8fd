"""The shapes of OpenAI's completions API: what comes in, what goes out, how errors look."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from kernels.errors import WorkloadError


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a streamed answer."""

    include_usage: bool = False


class CompletionRequest(msgspec.Struct, frozen=True):
    """Body of POST /v1/completions; fields that the server does not know are ignored.

    `user` names the tenant. `ignore_eos` is vLLM's extension, on by default: a model with random
    weights would end at random.
    """

    prompt: str
    model: Annotated[str, msgspec.Meta(max_length=256)] = ""
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 16
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: Annotated[str, msgspec.Meta(max_length=256)] = ""
    n: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    ignore_eos: bool = True


class ApiError(WorkloadError):
    """A refusal, sent as an OpenAI-style error body."""

    def __init__(self, status: int, message: str, code: str, *, retry_after_s: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s

    def body(self) -> bytes:
        """Render the error as JSON."""
        kind = "invalid_request_error" if self.status < 429 else "server_error"
        kind = "rate_limit_error" if self.status == 429 else kind
        error = {"message": str(self), "type": kind, "param": None, "code": self.code}
        return msgspec.json.encode({"error": error})


def parse(body: bytes) -> CompletionRequest:
    """Read a body. Raises ApiError 400."""
    try:
        return msgspec.json.decode(body, type=CompletionRequest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"cannot read the body: {error}", "invalid_body") from error
    except RecursionError as error:
        raise ApiError(400, "cannot read the body: nested too deeply", "invalid_body") from error


@dataclass(frozen=True)
class Answer:
    """What all parts of one answer share."""

    id: str
    created_s: int
    model: str


def completion(answer: Answer, text: str, finish: str, usage: tuple[int, int]) -> bytes:
    """Body of a whole answer; `usage` is prompt and completion tokens."""
    return msgspec.json.encode({**_part(answer, text, finish), "usage": _usage(usage)})


def chunk(answer: Answer, text: str, finish: str) -> bytes:
    """One server-sent event of a streamed answer."""
    return event(msgspec.json.encode(_part(answer, text, finish or None)))


def last_chunks(answer: Answer, usage: tuple[int, int] | None) -> bytes:
    """Return the end of a stream, after its usage when that was asked for."""
    done = event(b"[DONE]")
    if usage is None:
        return done
    body = {**_part(answer, "", None), "choices": [], "usage": _usage(usage)}
    return event(msgspec.json.encode(body)) + done


def event(data: bytes) -> bytes:
    """Frame one server-sent event."""
    return b"data: " + data + b"\n\n"


def _usage(usage: tuple[int, int]) -> dict[str, int]:
    prompt, generated = usage
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
    }


def _part(answer: Answer, text: str, finish: str | None) -> dict[str, object]:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {
        "id": answer.id,
        "object": "text_completion",
        "created": answer.created_s,
        "model": answer.model,
        "choices": [choice],
    }
