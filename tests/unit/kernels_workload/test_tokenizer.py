"""Bytes in, bytes out."""

from kernels.workload.tokenizer import BOS, EOS, TextStream, decode, encode


def test_text_survives() -> None:
    """Decoding gives back what was encoded, specials aside."""
    assert decode([*encode("grün €"), EOS]) == "grün €"


def test_a_character_comes_with_its_last_byte() -> None:
    """A streamed multi-byte character waits until it is whole."""
    stream = TextStream()
    assert [stream.feed(token) for token in "€".encode()] == ["", "", "€"]


def test_a_character_without_end_is_replaced() -> None:
    """What never became a character is shown as such at the end."""
    stream = TextStream()
    assert (stream.feed(0xE2), stream.feed(BOS), stream.close()) == ("", "", "\ufffd")
