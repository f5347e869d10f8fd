"""What OpenAI's completions and chat APIs take: bodies in, one kind of question out, and how refusals look."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import msgspec

from kernels.errors import WorkloadError

MAX_STOPS = 4  # OpenAI's limit
DEFAULT_TOKENS = 16  # OpenAI's default for completions; chats have none

T = TypeVar("T")
Name = Annotated[str, msgspec.Meta(max_length=256)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a streamed answer."""

    include_usage: bool = False


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """What both APIs take; fields that the server does not know are ignored.

    `user` names the tenant. `ignore_eos` and `priority` are vLLM's extensions; the first is on by default: a model with
    random weights would end at random. `steps` and `guidance_scale` are what batches by shape go by.
    """

    model: Name = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: Stop | Annotated[list[Stop], msgspec.Meta(max_length=MAX_STOPS)] | None = None
    user: Name = ""
    n: int = 1
    ignore_eos: bool = True
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0
    steps: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    guidance_scale: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 1.0


class CompletionRequest(Sampling, frozen=True, kw_only=True):
    """Body of POST /v1/completions."""

    prompt: str
    max_tokens: Count | None = DEFAULT_TOKENS


class TextPart(msgspec.Struct, frozen=True):
    """A part of a message; the model reads nothing but text."""

    type: Literal["text"]
    text: str


class Message(msgspec.Struct, frozen=True):
    """One turn of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """Its content in one piece."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatRequest(Sampling, frozen=True, kw_only=True):
    """Body of POST /v1/chat/completions; without a limit the context and the tenant are the limit."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=1024)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None


@dataclass(frozen=True)
class Asked:
    """A request of either API; no `max_tokens` is as many as there is room for."""

    prompt: str
    max_tokens: int | None
    stops: tuple[str, ...]
    sampling: Sampling

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        options = self.sampling.stream_options
        return options is not None and options.include_usage


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


def parse_completion(body: bytes) -> Asked:
    """Read a body of POST /v1/completions. Raises ApiError 400."""
    asked = _decode(_COMPLETION, body)
    return _asked(asked, asked.prompt, asked.max_tokens)


def parse_chat(body: bytes) -> Asked:
    """Read a body of POST /v1/chat/completions. Raises ApiError 400."""
    asked = _decode(_CHAT, body)
    return _asked(
        asked, chat_prompt(asked.messages), asked.max_completion_tokens or asked.max_tokens
    )


def chat_prompt(messages: list[Message]) -> str:
    """Write a chat as a prompt: a line per turn, then the beginning of the answer.

    A chat that goes on begins with the text of the one before, so that its prefix is found in the cache.
    """
    return "".join(f"{one.role}:{one.text}\n" for one in messages) + "assistant:"


def _asked(sampling: Sampling, prompt: str, max_tokens: int | None) -> Asked:
    if sampling.n != 1:
        raise ApiError(
            400, f"n={sampling.n}: one answer per request, send it again for more", "unsupported_n"
        )
    stop = sampling.stop or ()
    return Asked(prompt, max_tokens, (stop,) if isinstance(stop, str) else tuple(stop), sampling)


_COMPLETION = msgspec.json.Decoder(CompletionRequest)
_CHAT = msgspec.json.Decoder(ChatRequest)


def _decode(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"cannot read the body: {error}", "invalid_body") from error
    except RecursionError as error:
        raise ApiError(400, "cannot read the body: nested too deeply", "invalid_body") from error


Parse = Callable[[bytes], Asked]
