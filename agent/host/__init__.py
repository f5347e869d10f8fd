"""Reading Linux: procfs, cgroup hierarchies, pressure files, container identity."""
