"""Settings come from file, environment and flags in that order, and mistakes are named."""

from pathlib import Path

import pytest

from agent.config import Config
from agent.config_load import load
from agent.duration import parse_duration_s
from agent.errors import ConfigError
from agent.options import OPTIONS, key_of


def test_defaults() -> None:
    """With nothing said, the documented defaults hold and nothing leaves the machine."""
    config = load(None, {}, {})
    assert config == Config()
    assert (config.listen, config.otlp_port, config.metrics_port) == ("127.0.0.1", 4318, 9464)
    assert (config.forward, config.metrics_url) == ("", "")


def test_flag_over_environment_over_file(tmp_path: Path) -> None:
    """Each layer overrides the one below, key by key."""
    file = tmp_path / "agent.toml"
    file.write_text('otlp_port = 1\nmetrics_port = 2\ninterval = "2s"\nforward = "http://a:1"\n')
    environment = {"TAILCAUSE_AGENT_METRICS_PORT": "3", "TAILCAUSE_AGENT_INTERVAL": "3s", "X": "y"}
    config = load(file, environment, {"interval": "500ms"})
    assert (config.otlp_port, config.metrics_port, config.interval) == (1, 3, 0.5)
    assert config.forward == "http://a:1"


def test_table_and_dashes_are_the_same_key(tmp_path: Path) -> None:
    """`[path] procfs` and `otlp-port` are read as the flags are written."""
    file = tmp_path / "agent.toml"
    file.write_text('otlp-port = 7\ndisable = ["gpu"]\n[path]\nprocfs = "/host/proc"\n')
    config = load(file, {}, {})
    assert (config.otlp_port, config.path_procfs, config.disable) == (7, "/host/proc", ("gpu",))


def test_selection_is_lists_of_globs(tmp_path: Path) -> None:
    """What is read of a host can be chosen in a file and on the command line; a list replaces the default."""
    file = tmp_path / "agent.toml"
    file.write_text('disk_exclude = []\n[cgroup]\nmatch = ["/kubepods*", "!*/besteffort/*"]\n')
    selection = load(file, {}, {"process_names": "vllm,tritonserver"}).selection
    assert selection.disk("loop0")
    assert not selection.interface("veth0")
    assert [
        path for path in ("/kubepods/a", "/kubepods/besteffort/a", "/x") if selection.cgroup(path)
    ] == ["/kubepods/a"]
    assert selection.process_names == ("vllm", "tritonserver")


def test_export_follows_forward_unless_it_is_off() -> None:
    """Metrics go where spans go, elsewhere, or nowhere."""
    url = "http://127.0.0.1:14318"
    assert load(None, {}, {"forward": url}).metrics_url == url
    assert load(None, {}, {"forward": url, "export": "http://b:1"}).metrics_url == "http://b:1"
    assert load(None, {}, {"forward": url, "export": "off"}).metrics_url == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("otlp_prt = 1", "unknown key 'otlp_prt'; did you mean 'otlp_port'"),
        ("zzz = 1", "unknown key 'zzz'"),
        ("otlp_port = 70000", "otlp_port must be a port"),
        ('otlp_port = "x"', "otlp_port"),
        ('interval = "soon"', "'soon' is no duration"),
        ('interval = "1ms"', "interval must be at least 10ms"),
        ('forward = "ftp://x"', "forward must be a URL"),
        ('forward = "http://[x"', "forward must be a URL"),
        ('disable = "gpus"', "no collector 'gpus'; did you mean 'gpu'"),
        ('log_level = "warn"', "did you mean 'warning'"),
        ("x = = 1", "is not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    """A mistake names the key and, where it can, the right word."""
    file = tmp_path / "agent.toml"
    file.write_text(text + "\n")
    with pytest.raises(ConfigError) as caught:
        load(file, {}, {})
    assert message in str(caught.value)


def test_unknown_environment_variable_is_named() -> None:
    """A misspelt variable of ours is an error, too."""
    with pytest.raises(ConfigError, match="the environment: unknown key 'forwad'"):
        load(None, {"TAILCAUSE_AGENT_FORWAD": "http://a:1"}, {})


def test_missing_file_is_named(tmp_path: Path) -> None:
    """A file that is not there is one line, not a traceback."""
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml", {}, {})


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("1s", 1.0), ("1.5m", 90.0), ("2h", 7200.0), (" 3 ", 3.0)]
)
def test_durations(text: str, seconds: float) -> None:
    """Durations are read with their units."""
    assert parse_duration_s(text) == seconds


def test_every_setting_has_a_flag() -> None:
    """A setting without a flag, or a flag without a setting, does not exist."""
    assert [key_of(option) for option in OPTIONS] == list(Config.__struct_fields__)


def test_ebpf_section(tmp_path: Path) -> None:
    """The probes have a section of their own, and lists may be written as text."""
    file = tmp_path / "agent.toml"
    file.write_text(
        '[ebpf]\nenabled = true\nprobes = ["sched", "span"]\ncuda = true\nwatch = [7]\n'
    )
    probes = load(file, {"TAILCAUSE_AGENT_EBPF_WATCH": "8, 9"}, {}).probes
    assert (probes.enabled, probes.names, probes.cuda, probes.watch) == (
        True,
        ("sched", "span"),
        True,
        (8, 9),
    )


def test_no_ebpf_and_disable_mean_the_same() -> None:
    """Either way there are no probes."""
    assert not load(None, {}, {"ebpf_enabled": "false"}).probes.enabled
    assert not load(None, {}, {"disable": "ebpf"}).probes.enabled
    assert load(None, {}, {}).probes.enabled


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("ebpf_probes", "shed", "no probe 'shed'; did you mean 'sched'"),
        ("ebpf_own_budget", "3", "ebpf_own_budget must be a share"),
        ("ebpf_memory_budget", "0", "ebpf_memory_budget must be megabytes"),
    ],
)
def test_wrong_probe_settings_are_told(key: str, value: str, told: str) -> None:
    """A misspelt probe or a budget in percent is an error with what to write."""
    with pytest.raises(ConfigError, match=told):
        load(None, {}, {key: value})
