"""Faults, changes of demand and decoys, made for real and undone whatever happens."""
