"""Takes what users wrote and sent out of telemetry, and leaves the shape that an analysis needs."""
