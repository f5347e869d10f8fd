"""Runs the reference workload: its cgroup, its socket, rolling deploys, and a clean end."""
