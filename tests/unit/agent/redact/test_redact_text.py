"""Lines keep their template, stack traces their frames, URLs their path."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.redact.text import redact_stack, redact_url, template


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("request 4711 took 35.2 ms", "request <num> took <num>.<num> ms"),
        ("user 'bob' said \"no\"", "user <str> said <str>"),
        ("mail to ann@example.org now", "mail to <email> now"),
        ("id 0af76519-16cd-43dd-8448-eb211c80319c ok", "id <uuid> ok"),
        ("at 0xdeadbeef in c0ffee1234567890", "at <hex> in <hex>"),
        ("user=bob state=ok", "user=<*> state=<*>"),
        ("password: swordfish given", "password: <*> given"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer <*>"),
        ("api key is abc", "api key is <*>"),
        ("max tokens exceeded", "max tokens exceeded"),
        ("can't reach the server's disk", "can't reach the server's disk"),
        (
            "GET http://a:b@host:80/v1/x?q=secret done",
            "GET http://REDACTED@host:<num>/<num>/x?REDACTED done",
        ),
        ('broken "quote secret', "broken <str>"),
        ("connection refused", "connection refused"),
    ],
)
def test_template(text: str, expected: str) -> None:
    """Values become placeholders, words stay."""
    assert template(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://host/path?token=abc#part", "https://host/path?REDACTED"),
        ("https://user:p@ss@host/path", "https://REDACTED@host/path"),
        ("/v1/items?id=7", "/v1/items?REDACTED"),
        ("/v1/items", "/v1/items"),
        ("https://host/#secret", "https://host/#REDACTED"),
    ],
)
def test_url(text: str, expected: str) -> None:
    """User, query and fragment go."""
    assert redact_url(text) == expected


PYTHON = """Traceback (most recent call last):
  File "/app/server.py", line 12, in handle
    raise ValueError(f"no user {name}")
ValueError: no user secret
and a second line of secret"""
JAVA = """java.lang.IllegalStateException: secret
\tat com.example.Server.handle(Server.java:42)
\tat java.base/java.lang.Thread.run(Thread.java:833)
Caused by: java.io.IOException: secret
\t... 3 more"""
NODE = """TypeError: secret is bad
    at handle (/app/server.js:10:5)
    at async /app/main.js:3:1"""
GO = """goroutine 7 [running]:
main.handle(secret)
\t/app/main.go:12 +0x1d"""


PYTHON_LEFT = """Traceback (most recent call last):
  File "/app/server.py", line 12, in handle
ValueError"""
JAVA_LEFT = """java.lang.IllegalStateException
\tat com.example.Server.handle(Server.java:42)
\tat java.base/java.lang.Thread.run(Thread.java:833)
Caused by: java.io.IOException
\t... 3 more"""
NODE_LEFT = """TypeError
    at handle (/app/server.js:10:5)
    at async /app/main.js:3:1"""
GO_LEFT = """goroutine 7 [running]:
\t/app/main.go:12 +0x1d"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [(PYTHON, PYTHON_LEFT), (JAVA, JAVA_LEFT), (NODE, NODE_LEFT), (GO, GO_LEFT)],
)
def test_stack(text: str, expected: str) -> None:
    """Frames and types stay, messages and source lines go."""
    assert redact_stack(text) == expected


_values = st.one_of(
    st.integers(10_000, 10**12).map(str),
    st.uuids().map(str),
    st.emails().filter(
        lambda text: not set(text) & set("'\"=:,;<>()@ ") - {"@"} and text.count("@") == 1
    ),
    st.text("0123456789abcdef", min_size=12, max_size=20),
    st.text(st.characters(codec="utf-8", exclude_characters='"\\'), min_size=8).map(
        lambda text: f'"{text}"'
    ),
    st.text("abcxyz", min_size=6).map(lambda text: f"key={text}"),
    st.text("abcxyz", min_size=6).map(lambda text: f"password: {text}"),
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["", "order ", "failed at step 3: ", "x=1 y "]),
    _values,
    st.sampled_from(["", " done", ", retry 2", "."]),
)
def test_a_planted_value_never_comes_out(head: str, value: str, tail: str) -> None:
    """Numbers, ids, addresses, quoted text and keyed values are gone wherever they stand."""
    secret = value.removeprefix("key=").removeprefix("password: ").strip('"').strip()
    line = template(f"{head}{value}{tail}")
    assert secret not in line or len(secret) < 4


@pytest.mark.parametrize(
    "unit", ["a", "a.", "a@", "token ", "= ", "'", '"', "://", "9a", "\\", "(", "a-"]
)
def test_no_text_is_slow(unit: str) -> None:
    """Text that repeats what patterns begin with takes linear time: twice as much, not four times."""
    text = unit * 8000
    started_s = time.process_time()
    template(text)
    redact_stack(text)
    redact_url(text)
    assert time.process_time() - started_s < 2.0  # a quadratic pattern takes minutes
