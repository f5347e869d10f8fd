"""OTLP over HTTP and gRPC: one codec, the receivers and the senders, used by the agent and the detector."""
