"""Stop sequences end the text and are no part of it."""

from hypothesis import given
from hypothesis import strategies as st

from kernels.workload.generation import stopped_by
from kernels.workload.stops import StopFilter, without_stop
from kernels.workload.tokenizer import encode_stops

LETTERS = st.text("ab", max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=3), max_size=3)


def until_stop(text: str, stops: tuple[tuple[int, ...], ...]) -> list[int]:
    """Tokens that an engine makes of a text: up to the first stop sequence."""
    tokens: list[int] = []
    for token in text.encode():
        tokens.append(token)
        if stopped_by(tokens, stops):
            break
    return tokens


@given(LETTERS, STOPS)
def test_a_stream_has_the_text_of_a_whole_answer(text: str, texts: list[str]) -> None:
    """Whatever is held back for a while, the pieces join to the text without its stop sequence."""
    stops = encode_stops(texts)
    tokens = until_stop(text, stops)
    kept_out = StopFilter(stops)
    pieces = [kept_out.feed(one, last=at == len(tokens)) for at, one in enumerate(tokens, 1)]
    joined = [token for piece in pieces for token in piece]
    assert joined == without_stop(tokens, stops)
    assert not any(stop in bytes(joined).decode() for stop in texts)


def test_only_what_may_be_a_stop_waits() -> None:
    """Text is passed on as soon as it cannot be the beginning of a stop sequence."""
    kept_out = StopFilter(encode_stops(["END"]))
    passed = [bytes(kept_out.feed(token, last=False)) for token in b"an ENEMY"]
    assert passed == [b"a", b"n", b" ", b"", b"", b"EN", b"EM", b"Y"]


def test_the_longest_of_several_falls_away() -> None:
    """A stop sequence that ends another one takes all of it along."""
    assert without_stop(list(b"xxab"), encode_stops(["b", "ab"])) == list(b"xx")
