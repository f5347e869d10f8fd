"""GPUs: the driver's library, what it tells of each device, its events, and a dcgm-exporter in its place."""
