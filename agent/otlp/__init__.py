"""OTLP over HTTP: one codec, one receiver and one sender, used by the agent and the detector."""
