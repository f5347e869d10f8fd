"""Kubernetes identity: which pod, container and devices belong together on this node."""
