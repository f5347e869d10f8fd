"""Pods as the kubelet lists them: written after the Kubernetes API reference, "Pod v1 core"."""

import hashlib


def hex64(text: str) -> str:
    """Return a container id that a text stands for."""
    return hashlib.sha256(text.encode()).hexdigest()


def uid(name: str) -> str:
    """Return the pod uid that a name stands for."""
    digits = hashlib.sha256(f"pod {name}".encode()).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


def pod(name: str, namespace: str = "serving", **changes: object) -> dict[str, object]:
    """Return a running pod of the deployment `vllm` with a server and a sidecar.

    `changes` are parts of its metadata, spec or status to be replaced, by name.
    """
    metadata: dict[str, object] = {
        "name": name,
        "namespace": namespace,
        "uid": uid(name),
        "labels": {"app": "vllm", "pod-template-hash": "7c9d5f6b84", "team": "search"},
        "annotations": {"kubernetes.io/config.source": "api", "note": "x" * 500},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "vllm-7c9d5f6b84",
             "uid": uid("rs"), "controller": True, "blockOwnerDeletion": True},
        ],
        "creationTimestamp": "2026-11-30T09:59:58Z",
    }  # fmt: skip
    spec: dict[str, object] = {
        "nodeName": "node-1",
        "initContainers": [{"name": "fetch", "image": "busybox", "resources": {}}],
        "containers": [
            {"name": "server", "image": "registry.local:5000/team/vllm:v0.9.1",
             "resources": {"limits": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
                           "requests": {"cpu": "3500m", "memory": "16Gi", "nvidia.com/gpu": "1"}}},
            {"name": "sidecar", "image": "envoy@sha256:" + "ab" * 32,
             "resources": {"requests": {"cpu": "100m"}}},
        ],
    }  # fmt: skip
    status: dict[str, object] = {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": "2026-11-30T10:00:00Z",
        "conditions": [
            {"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"},
        ],
        "initContainerStatuses": [_status(name, "fetch", restarts=0)],
        "containerStatuses": [
            {**_status(name, "server", restarts=2),
             "resources": {"limits": {"cpu": "2", "memory": "16Gi"}, "requests": {"cpu": "2"}}},
            _status(name, "sidecar", restarts=0),
        ],
    }  # fmt: skip
    found: dict[str, object] = {"metadata": metadata, "spec": spec, "status": status}
    for part in (metadata, spec, status):
        part.update({key: changes.pop(key) for key in list(changes) if key in part})
    metadata.update(changes)
    return found


def _status(pod_name: str, name: str, restarts: int) -> dict[str, object]:
    return {
        "name": name,
        "ready": True,
        "restartCount": restarts,
        "image": f"registry.local/{name}:latest",
        "imageID": f"registry.local/{name}@sha256:" + "cd" * 32,
        "containerID": f"containerd://{container_id(pod_name, name, restarts)}",
        "state": {"running": {"startedAt": "2026-11-30T10:00:05Z"}},
    }


def container_id(pod_name: str, name: str = "server", restarts: int = 2) -> str:
    """Return the id of a container of such a pod."""
    return hex64(f"{pod_name} {name} {restarts}")
