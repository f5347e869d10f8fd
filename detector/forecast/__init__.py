"""Forecasters of a latency quantile; one estimator per file."""
