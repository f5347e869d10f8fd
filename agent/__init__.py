"""The per-node agent: collects signals of the host, the cgroups and the GPU and enriches spans."""
