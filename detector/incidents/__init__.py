"""Incidents kept on disk with their snapshot and report."""
