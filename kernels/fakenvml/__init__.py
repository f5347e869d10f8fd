"""A library with NVML's interface that answers from a scenario file, for machines without a GPU."""
