"""The tables of metrics, one file for each kind of source; `agent.telemetry.names` joins them."""
