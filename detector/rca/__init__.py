"""Root-cause analysis: from a snapshot of telemetry to ranked causes whose shares add up."""
