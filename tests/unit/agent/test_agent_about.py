"""What the agent says of its build, its configuration and its privileges."""

from pathlib import Path

import pytest

from agent.about import About, process_age_s
from agent.build import revision
from agent.capabilities import NEEDED, can_probe, needed
from agent.config import Config
from agent.config_load import load
from agent.config_show import config_hash, mask_url

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_revision_of_a_checkout(tmp_path: Path) -> None:
    """It is read from HEAD, a branch, or the packed references; empty where there is none."""
    assert revision(tmp_path) == ""
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text(f"{COMMIT}\n")
    assert revision(tmp_path) == COMMIT
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{COMMIT} refs/heads/main\n")
    assert revision(tmp_path) == COMMIT
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "main").write_text(f"{COMMIT[::-1]}\n")
    assert revision(tmp_path) == COMMIT[::-1]
    (git / "HEAD").write_text("ref: refs/heads/none\n")
    assert revision(tmp_path) == ""


def test_hash_tells_configurations_apart_without_their_secrets() -> None:
    """A setting changes it, a password does not."""
    one = load(None, {}, {"forward": "https://me:a@example.org"})
    other = load(None, {}, {"forward": "https://me:b@example.org"})
    third = load(None, {}, {"forward": "https://me:a@example.org", "interval": "2s"})
    assert config_hash(one) == config_hash(other) != config_hash(third)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
        ("grpcs://me:pw@example.org:4317/x", "grpcs://***@example.org:4317/x"),
        ("https://token@[::1]:1", "https://***@[::1]:1"),
        ("", ""),
    ],
)
def test_urls_are_masked(url: str, shown: str) -> None:
    """User and password are not shown, the rest is."""
    assert mask_url(url) == shown


def test_first_export_is_when_it_is_asked_first() -> None:
    """The age at the first question stays, that of being ready is absent until then."""
    ages_s = iter((2.0, 1.0))
    about = About(Config, lambda: next(ages_s))
    first = {sample.metric: sample.value for sample in about()}
    assert first["tailcause.agent.first_export.duration"] == 2.0
    assert "tailcause.agent.start.duration" not in first
    about.ready()
    later = {sample.metric: sample.value for sample in about()}
    assert later["tailcause.agent.start.duration"] == 1.0
    assert later["tailcause.agent.first_export.duration"] == 2.0


def test_process_has_an_age() -> None:
    """It is more than nothing and less than the machine's."""
    age_s = process_age_s()
    assert age_s is not None
    assert 0 < age_s < float(Path("/proc/uptime").read_text().split()[0]) + 1


def test_needed_capabilities_follow_the_settings() -> None:
    """Without probes theirs go; a low port wants its own."""
    plain = {one.name for one in needed(probes=False, ports=[4318, 0])}
    assert plain == {"CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_SYSLOG"}
    assert {one.name for one in needed(probes=False, ports=[80])} - plain == {
        "CAP_NET_BIND_SERVICE"
    }
    probes = {one.name for one in needed(probes=True, ports=[4318])}
    assert {"CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN"} <= probes - plain


def test_probes_need_the_new_pair_or_the_old_one() -> None:
    """BPF alone is not enough, SYS_ADMIN is."""
    bit = {one.name: 1 << one.number for one in NEEDED}
    assert not can_probe(bit["CAP_BPF"])
    assert can_probe(bit["CAP_BPF"] | bit["CAP_PERFMON"])
    assert can_probe(bit["CAP_SYS_ADMIN"])
