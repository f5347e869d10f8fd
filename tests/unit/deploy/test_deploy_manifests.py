"""The Kubernetes manifests are what the API server takes and what the agent understands; no image is built here."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from agent import cli
from agent.capabilities import NEEDED
from agent.config import Config
from agent.config_load import ENVIRONMENT_PREFIX, load
from agent.options import given_flags

FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
SETS = ("daemonset.yaml", "daemonset-unprivileged.yaml")
NOT_IN_PODS = {"CAP_NET_BIND_SERVICE", "CAP_SYSLOG"}
"""Its ports are above 1023, and no capability opens /dev/kmsg in a container."""


def documents(name: str) -> list[dict[str, Any]]:
    """Return the documents of a manifest."""
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def pod(name: str) -> dict[str, Any]:
    """Return the pod of a DaemonSet."""
    [found] = documents(name)
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    """Return its one container."""
    [found] = pod(name)["containers"]
    return dict(found)


@pytest.mark.parametrize("version", ["1.33", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.yaml")))
def test_manifests_fit_the_schema(name: str, version: str) -> None:
    """Every document passes the API's own schema, unknown fields refused."""
    for document in documents(name):
        kubernetes_validate.validate(document, version, strict=True)


def test_schema_check_can_fail() -> None:
    """A field that does not exist is found: the check above is one."""
    [broken] = documents("daemonset.yaml")
    broken["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.33", strict=True)


def test_names_refer_to_something() -> None:
    """Account, settings, priority class, selectors and bindings name what is there."""
    rbac = {document["kind"]: document for document in documents("rbac.yaml")}
    settings, service = documents("config.yaml")
    account = rbac["ServiceAccount"]["metadata"]["name"]
    assert rbac["ClusterRoleBinding"]["subjects"][0]["name"] == account
    assert rbac["ClusterRoleBinding"]["roleRef"]["name"] == rbac["ClusterRole"]["metadata"]["name"]
    for name in SETS:
        [found] = documents(name)
        labels = found["spec"]["template"]["metadata"]["labels"]
        assert labels.items() >= found["spec"]["selector"]["matchLabels"].items()
        assert labels.items() >= service["spec"]["selector"].items()
        assert pod(name)["serviceAccountName"] == account
        assert pod(name)["priorityClassName"] == rbac["PriorityClass"]["metadata"]["name"]
        volumes = {volume["name"]: volume for volume in pod(name)["volumes"]}
        assert {mount["name"] for mount in container(name)["volumeMounts"]} == set(volumes)
        assert volumes["config"]["configMap"]["name"] == settings["metadata"]["name"]
        ports = {port["name"] for port in container(name)["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container(name)[probe]["httpGet"]["port"] in ports


@pytest.mark.parametrize("name", SETS)
def test_agent_understands_its_settings(name: str, tmp_path: Path) -> None:
    """Command line, environment and file of a pod are read without a mistake, and say what is meant."""
    settings, _ = documents("config.yaml")
    file = tmp_path / "agent.toml"
    file.write_text(settings["data"]["agent.toml"])
    variables = {one["name"]: one.get("value", "x") for one in container(name)["env"]}
    variables["TAILCAUSE_AGENT_KUBELET"] = variables["TAILCAUSE_AGENT_KUBELET"].replace(
        "$(NODE_IP)", "10.0.0.1"
    )
    words = container(name)["command"][1:]
    parser, _ = cli.parser(words)
    args = parser.parse_args(words)
    assert str(args.config) == "/etc/tailcause/agent.toml"
    config = load(file, variables, given_flags(args))
    assert any(key.startswith(ENVIRONMENT_PREFIX) for key in variables)
    assert (config.listen, config.kubelet) == ("0.0.0.0", "https://10.0.0.1:10250")  # noqa: S104
    assert config.unprivileged == (name == "daemonset-unprivileged.yaml")
    ports = {port["name"]: port["containerPort"] for port in container(name)["ports"]}
    default = Config()
    assert ports == {
        "otlp-grpc": default.grpc_port,
        "otlp-http": default.otlp_port,
        "metrics": default.metrics_port,
    }


def test_capabilities_are_those_that_the_agent_has_a_use_for() -> None:
    """The privileged set has every capability that the code names, and no other."""
    context = container("daemonset.yaml")["securityContext"]
    assert context["capabilities"]["drop"] == ["ALL"]
    added = {f"CAP_{name}" for name in context["capabilities"]["add"]}
    assert added == {one.name for one in NEEDED} - NOT_IN_PODS
    assert not context.get("privileged", False)


def test_unprivileged_set_is_restricted() -> None:
    """It fits the Pod Security Standard `restricted`: no host names, paths or ports, no root, no capability."""
    spec, one = pod("daemonset-unprivileged.yaml"), container("daemonset-unprivileged.yaml")
    assert not {"hostPID", "hostNetwork", "hostIPC"} & set(spec)
    assert all({"configMap", "emptyDir"} & set(volume) for volume in spec["volumes"])
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert one["securityContext"]["allowPrivilegeEscalation"] is False
    assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert all("hostPort" not in port for port in one["ports"])
