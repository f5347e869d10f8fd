"""Where telemetry is read from; one file and one registry line per source."""
