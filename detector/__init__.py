"""The detector: stores telemetry, forecasts the tail, finds causes and renders the report."""
