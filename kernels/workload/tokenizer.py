"""Byte tokenizer: one token per UTF-8 byte, plus two specials."""

import codecs
from collections.abc import Sequence

BOS = 256
EOS = 257
VOCABULARY = 258


def encode(text: str) -> list[int]:
    """Token ids of a prompt, begin-of-sequence first."""
    return [BOS, *text.encode("utf-8", errors="replace")]


def encode_stops(texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Token ids of stop sequences, the longest first."""
    stops = {tuple(text.encode("utf-8", errors="replace")) for text in texts}
    return tuple(sorted(stops, key=lambda stop: (-len(stop), stop)))


class TextStream:
    """Turns tokens into text as they come; an incomplete UTF-8 sequence waits for its end."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """Text that this token completes; specials have none."""
        return self._decoder.decode(bytes([token])) if token < BOS else ""

    def close(self) -> str:
        """Text of what was left incomplete."""
        return self._decoder.decode(b"", final=True)


def decode(tokens: Sequence[int]) -> str:
    """Text of a whole completion."""
    return bytes(token for token in tokens if token < BOS).decode("utf-8", errors="replace")
