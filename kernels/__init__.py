"""The reference workload: a small inference server, its load, its faults and its supervisor."""
