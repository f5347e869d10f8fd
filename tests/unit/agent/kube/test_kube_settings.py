"""Nothing is asked unless it is configured, and mistakes are named."""

from pathlib import Path

import pytest

from agent.config_load import load
from agent.errors import ConfigError
from agent.kube import settings
from agent.kube.settings import KubeletAccess


def test_nothing_is_asked_by_default() -> None:
    """Without a setting neither the kubelet nor its socket is used."""
    kube = load(None, {}, {}).kube
    assert not kube.configured
    assert (kube.kubelet, kube.socket, kube.labels) == (KubeletAccess(), None, ())


def test_settings_reach_the_kubelet(tmp_path: Path) -> None:
    """The table of a file, the environment and a flag mean the same keys."""
    file = tmp_path / "agent.toml"
    text = (
        'kubelet = "https://10.0.0.7:10250"\n[kube]\ntoken_file = "/t"\nlabels = ["app", "team"]\n'
    )
    file.write_text(text)
    config = load(file, {"TAILCAUSE_AGENT_KUBE_CA_FILE": "/ca"}, {"kube_insecure": "true"})
    assert config.kube.kubelet == KubeletAccess("https://10.0.0.7:10250", "/t", "/ca", True)
    assert config.kube.labels == ("app", "team")
    assert config.kube.deadline_s == config.deadline


@pytest.mark.parametrize("url", ["10.0.0.7:10250", "ftp://x", "https://", "unix:///x"])
def test_wrong_address_is_told(url: str) -> None:
    """What is no HTTP address is refused at the start."""
    with pytest.raises(ConfigError, match="kubelet must be a URL"):
        load(None, {}, {"kubelet": url})


def test_socket_goes_with_the_kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a kubelet its usual socket is tried where there is one; `off` leaves it, a path is always used."""
    usual = tmp_path / "kubelet.sock"
    monkeypatch.setattr(settings, "POD_RESOURCES_SOCKET", usual)
    named = {"kubelet": "https://10.0.0.7:10250"}
    assert load(None, {}, named).kube.socket is None
    usual.touch()
    assert load(None, {}, named).kube.socket == usual
    assert load(None, {}, {}).kube.socket is None
    assert load(None, {}, {**named, "kube_pod_resources": "off"}).kube.socket is None
    alone = load(None, {}, {"kube_pod_resources": "/x/y.sock"}).kube
    assert (alone.socket, alone.configured) == (Path("/x/y.sock"), True)
