"""The kubelet is asked within bounds, with a token, and its refusals say what to do."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.kube.errors import KubeletError
from agent.kube.kubelet import Kubelet
from agent.kube.podlist import read_pods
from agent.kube.settings import KubeletAccess
from agent.telemetry.model import SignalState
from tests.support import kubelet as double
from tests.support.kubelet import TOKEN, Behaviour
from tests.support.kubelet_pods import pod


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that holds the certificate of all kubelets of this module, and a token."""
    path = tmp_path_factory.mktemp("kubelet")
    (path / "token").write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def kubelet(folder: Path) -> Iterator[double.Kubelet]:
    """Return a running kubelet that wants the token."""
    with double.serving(folder, Behaviour([pod("vllm-a")])) as running:
        yield running


def ask(
    running: double.Kubelet, *, deadline_s: float = 20.0, max_body: int = 1 << 20, **access: object
) -> bytes:
    """Return the answer of a kubelet, asked with its own CA and the right token unless told else."""
    given: dict[str, object] = {
        "token_file": str(running.ca_file.parent / "token"),
        "ca_file": str(running.ca_file),
        **access,
    }
    return Kubelet(KubeletAccess(running.url, **given), deadline_s, max_body).pods()  # type: ignore[arg-type]


def refusal(running: double.Kubelet, **options: object) -> KubeletError:
    """Return what is told when a kubelet gives no answer."""
    with pytest.raises(KubeletError) as caught:
        ask(running, **options)  # type: ignore[arg-type]
    return caught.value


def test_pods_with_token_and_ca(kubelet: double.Kubelet) -> None:
    """A kubelet whose certificate and token are right gives its pods."""
    assert [one.name for one in read_pods(ask(kubelet)).pods] == ["vllm-a"]
    assert kubelet.behaviour.asked == [f"Bearer {TOKEN}"]


def test_rotated_token_is_read_anew(kubelet: double.Kubelet, tmp_path: Path) -> None:
    """The token file is read for each request: Kubernetes replaces it every hour."""
    token = tmp_path / "token"
    token.write_text("old")
    asking = Kubelet(KubeletAccess(kubelet.url, str(token), str(kubelet.ca_file)), 20.0, 1 << 20)
    with pytest.raises(KubeletError, match="401"):
        asking.pods()
    token.write_text(TOKEN)
    assert read_pods(asking.pods()).pods


def test_wrong_token(kubelet: double.Kubelet, tmp_path: Path) -> None:
    """401 is a question of the token."""
    (tmp_path / "token").write_text("somebody else's")
    told = refusal(kubelet, token_file=str(tmp_path / "token"))
    assert told.outcome is SignalState.NO_PERMISSION
    assert "HTTP 401" in told.reason
    assert "--kube-token-file" in told.remedy


def test_missing_rights(kubelet: double.Kubelet) -> None:
    """403 names the rule that is missing."""
    kubelet.behaviour.forbidden = True
    told = refusal(kubelet)
    assert told.outcome is SignalState.NO_PERMISSION
    assert "HTTP 403" in told.reason
    assert "nodes/pods" in told.remedy
    assert "nodes/proxy" in told.remedy


@pytest.mark.parametrize(("content", "why"), [(None, "does not exist"), ("\n", "holds no token")])
def test_token_file_that_cannot_be_used(
    kubelet: double.Kubelet, tmp_path: Path, content: str | None, why: str
) -> None:
    """A token file that was named must hold a token."""
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    told = refusal(kubelet, token_file=str(file))
    assert told.outcome is SignalState.NO_PERMISSION
    assert why in told.reason
    assert kubelet.behaviour.asked == []


def test_strange_certificate(kubelet: double.Kubelet, tmp_path: Path) -> None:
    """A certificate of another CA is refused before the token is sent."""
    other, _ = double.certificate(tmp_path)
    told = refusal(kubelet, ca_file=str(other))
    assert "not trusted" in told.reason
    assert "--kube-insecure" in told.remedy
    assert kubelet.behaviour.asked == []


def test_missing_ca_file(kubelet: double.Kubelet, tmp_path: Path) -> None:
    """A CA file that is not there is named."""
    told = refusal(kubelet, ca_file=str(tmp_path / "none.crt"))
    assert "none.crt" in told.reason
    assert kubelet.behaviour.asked == []


def test_insecure_is_explicit(kubelet: double.Kubelet, tmp_path: Path) -> None:
    """Who says so gets the pods without a check of the certificate."""
    assert ask(kubelet, ca_file=str(tmp_path / "none.crt"), insecure=True)


def test_read_only_port_gets_no_token(folder: Path) -> None:
    """A token never crosses plain HTTP, not even when it is configured."""
    with double.serving(folder, Behaviour([pod("vllm-a")], token=""), tls=False) as running:
        assert read_pods(ask(running)).pods
        assert running.behaviour.asked == [""]


@pytest.mark.parametrize("status", [204, 302, 404, 500, 503])
def test_other_answers_fail(kubelet: double.Kubelet, status: int) -> None:
    """Whatever is not 200 gives no pods; a redirection is not followed."""
    kubelet.behaviour.status = status
    told = refusal(kubelet)
    assert told.outcome is SignalState.FAILED
    assert f"HTTP {status}" in told.reason


def test_large_answer_is_refused(kubelet: double.Kubelet) -> None:
    """No more is read than the bound."""
    kubelet.behaviour.body = b" " * (3 << 20)
    told = refusal(kubelet, max_body=2 << 20)
    assert (told.outcome, told.reason) == (
        SignalState.FAILED,
        "the list of pods is larger than 2 MiB",
    )


def test_slow_answer_is_cut(kubelet: double.Kubelet) -> None:
    """A kubelet that thinks for too long is hung."""
    kubelet.behaviour.pause_s = 60.0
    told = refusal(kubelet, deadline_s=0.5)
    assert told.outcome is SignalState.HUNG
    assert "within 0.5 s" in told.reason


def test_dripping_answer_is_cut(kubelet: double.Kubelet) -> None:
    """Bytes that keep coming one at a time do not prolong the deadline."""
    kubelet.behaviour.drip_s = 0.05
    kubelet.behaviour.body = b" " * 10_000
    begun_s = time.monotonic()
    told = refusal(kubelet, deadline_s=1.0)
    assert told.outcome is SignalState.HUNG
    assert time.monotonic() - begun_s < 60.0  # of the 500 s that it would take


@contextmanager
def raw_server(answer: bytes) -> Iterator[str]:
    """Run a server that sends these bytes to the first who connects and closes; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(30)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
def test_broken_http(answer: bytes) -> None:
    """What is no HTTP, or ends too soon, fails; half an answer does not pass for one."""
    with raw_server(answer) as url, pytest.raises(KubeletError) as caught:
        Kubelet(KubeletAccess(url), 20.0, 1 << 20).pods()
    assert caught.value.outcome is SignalState.FAILED


def test_nobody_listens() -> None:
    """A kubelet that is away fails with its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(KubeletError, match=f"127.0.0.1:{port}") as caught:
        Kubelet(KubeletAccess(f"http://127.0.0.1:{port}"), 5.0, 1 << 20).pods()
    assert caught.value.outcome is SignalState.FAILED


def test_kubelet_comes_back(folder: Path) -> None:
    """A restarted kubelet is asked again at the same address."""
    with double.serving(folder, Behaviour([pod("vllm-a")])) as running:
        url, ca = running.url, str(running.ca_file)
        asking = Kubelet(KubeletAccess(url, str(folder / "token"), ca), 20.0, 1 << 20)
        assert asking.pods()
    with pytest.raises(KubeletError):
        asking.pods()
    port = int(url.rpartition(":")[2])
    with double.serving(folder, Behaviour([pod("vllm-b")]), port=port):
        assert [one.name for one in read_pods(asking.pods()).pods] == ["vllm-b"]


def test_plain_http_to_a_tls_port(kubelet: double.Kubelet) -> None:
    """The wrong scheme is an error, not a hang."""
    url = kubelet.url.replace("https", "http")
    with pytest.raises(KubeletError):
        Kubelet(KubeletAccess(url), 20.0, 1 << 20).pods()
