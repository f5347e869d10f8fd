"""Keeps every trace that tells something of the tail, and a fair share of the rest."""
