"""Settings and the state folder."""

from pathlib import Path

import pytest

from detector import state
from detector.config import load
from detector.errors import CannotStartError, ConfigError


def test_flags_beat_environment_beats_file(tmp_path: Path) -> None:
    """The nearest source wins, key by key."""
    file = tmp_path / "c.toml"
    file.write_text("api_port = 1\notlp_port = 1\n[decision]\nsigma = 4.0\n")
    environ = {"TAILCAUSE_DETECTOR_API_PORT": "2", "TAILCAUSE_DETECTOR_OTLP_PORT": "2"}
    config = load(file, environ, [("api_port", 3)])
    assert (config.api_port, config.otlp_port, config.decision.sigma) == (3, 2, 4.0)


@pytest.mark.parametrize(
    ("file_text", "environ", "flags"),
    [
        ("[decision]\nsigmaa = 3\n", {}, []),
        ("", {"TAILCAUSE_DETECTOR_DECISION_SIGMAA": "3"}, []),
        ("", {}, [("decision.sigmaa", "3")]),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(
    tmp_path: Path, file_text: str, environ: dict[str, str], flags: list[tuple[str, str]]
) -> None:
    """From wherever it comes."""
    file = tmp_path / "c.toml"
    file.write_text(file_text)
    with pytest.raises(ConfigError, match=r"did you mean decision\.sigma"):
        load(file, environ, flags)


@pytest.mark.parametrize(
    ("key", "value"), [("api_port", "70000"), ("series.window_s", "0"), ("decision.sigma", "much")]
)
def test_a_value_out_of_range_is_an_error(key: str, value: str) -> None:
    """The message carries the path of the setting."""
    with pytest.raises(ConfigError, match=key.rpartition(".")[2]):
        load(None, {}, [(key, value)])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([("otlp_grpc_port", "x")], "otlp_grpc_port"),
        ([("tls_cert", "c.pem")], "belong together"),
        ([("tls_client_ca", "c.pem")], "needs tls_cert"),
    ],
)
def test_an_intake_that_cannot_work_is_an_error(settings: list[tuple[str, str]], said: str) -> None:
    """A port that is none, half a certificate."""
    with pytest.raises(ConfigError, match=said):
        load(None, {}, settings)


def test_a_store_too_short_for_the_analysis_is_an_error() -> None:
    """Rather than reports without a baseline."""
    with pytest.raises(ConfigError, match=r"store\.max_age_s"):
        load(None, {}, [("store.max_age_s", "60")])


def test_broken_toml_is_one_clear_error(tmp_path: Path) -> None:
    """With the name of the file."""
    file = tmp_path / "c.toml"
    file.write_text("= 3")
    with pytest.raises(ConfigError, match=r"c\.toml is not valid TOML"):
        load(file, {})


def test_the_state_folder_follows_the_rules() -> None:
    """TAILCAUSE_STATE, root, XDG."""
    assert state.default_state_dir({"TAILCAUSE_STATE": "/x"}, 0) == Path("/x")
    assert state.default_state_dir({}, 0) == Path("/var/lib/tailcause")
    assert state.default_state_dir({"HOME": "/h"}, 1000) == Path("/h/.local/state/tailcause")
    assert state.default_state_dir({"XDG_STATE_HOME": "/s"}, 1000) == Path("/s/tailcause")


def test_a_state_folder_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    """A file is in the way."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStartError, match="--state or TAILCAUSE_STATE"):
        state.prepare(tmp_path / "file" / "state")


def test_the_record_of_a_dead_service_is_ignored(tmp_path: Path) -> None:
    """After kill -9 the file stays; the process does not."""
    state.write_record(tmp_path, state.ServiceRecord(2**22 + 1, "127.0.0.1", 1, 2, 0.0))
    assert state.read_record(tmp_path) is None
