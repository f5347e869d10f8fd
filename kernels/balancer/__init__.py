"""Spreads requests over replicas: the least loaded healthy one takes the next."""
