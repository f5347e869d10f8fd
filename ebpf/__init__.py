"""The eBPF probes and their loaders."""
