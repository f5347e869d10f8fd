"""Servers are named in the configuration, and mistakes in them are named."""

import pytest

from agent.config_load import load
from agent.errors import ConfigError
from agent.servers.settings import MAX_TARGETS, Target, parse_targets


def test_nothing_is_read_without_being_told() -> None:
    """By default there is no target, and nobody is looked for."""
    scraping = load(None, {}, {}).scraping
    assert scraping.targets == ()
    assert not scraping.discover


@pytest.mark.parametrize(
    ("text", "url", "kind"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/metrics", ""),
        ("vllm@http://127.0.0.1:8000/", "http://127.0.0.1:8000/metrics", "vllm"),
        ("tensorrt_llm@http://h:8000", "http://h:8000/prometheus/metrics", "tensorrt_llm"),
        ("triton@https://h/own/page", "https://h/own/page", "triton"),
        ("sglang@http://[::1]:30000", "http://[::1]:30000/metrics", "sglang"),
    ],
)
def test_targets(text: str, url: str, kind: str) -> None:
    """A kind may be named, and gives the usual path where none is."""
    assert parse_targets((text,)) == (Target(url, kind),)


def test_address_of_a_target() -> None:
    """Host and port are those of the URL, the scheme's where it names none."""
    (one,) = parse_targets(("https://[::1]/x",))
    assert (one.host, one.port) == ("::1", 443)


@pytest.mark.parametrize(
    "text",
    [
        "vlm@http://a:1",
        "127.0.0.1:8000",
        "http://",
        "ftp://a:1",
        "http://a:0",
        "http://a:99999",
        "http://user:secret@a:1",
        "vllm@http://user:secret@a:1/x?y",
        "http://a:1/x?y=z",
        "http://a:1/x#y",
        "http://a:1/\r\nX-Y: z",
        "http://[::1",
        "",
    ],
)
def test_what_is_no_target(text: str) -> None:
    """A target that cannot be meant is refused before anything starts; a password is not repeated."""
    with pytest.raises(ConfigError) as caught:
        parse_targets((text,))
    assert "servers" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_targets_are_bounded_and_unique() -> None:
    """One twice is one, and more than an agent reads are refused."""
    assert len(parse_targets(("http://a:1", "http://a:1/metrics"))) == 1
    with pytest.raises(ConfigError):
        parse_targets(tuple(f"http://a:{1 + i}" for i in range(MAX_TARGETS + 1)))


def test_settings_by_file_environment_and_flag() -> None:
    """Lists, durations and switches are read as all settings are."""
    given = {
        "servers": "vllm@http://127.0.0.1:8000, sglang@http://127.0.0.1:30000",
        "servers_discover": "true",
        "servers_interval": "500ms",
        "servers_slow": "0.5 2.5",
    }
    environment = {f"TAILCAUSE_AGENT_{key.upper()}": value for key, value in given.items()}
    for scraping in (load(None, {}, dict(given)).scraping, load(None, environment, {}).scraping):
        assert [target.kind for target in scraping.targets] == ["vllm", "sglang"]
        assert (scraping.discover, scraping.poll_s) == (True, 0.5)
        assert scraping.thresholds_s == (0.5, 2.5)


@pytest.mark.parametrize("slow", ["0", "-1", "nan", "inf", "soon"])
def test_thresholds_are_seconds(slow: str) -> None:
    """A threshold that no latency can lie above or below is refused."""
    with pytest.raises(ConfigError):
        load(None, {}, {"servers_slow": slow})


def test_mistakes_are_found_at_start() -> None:
    """A bad target is an error of the configuration."""
    with pytest.raises(ConfigError):
        load(None, {}, {"servers": "nonsense"})
