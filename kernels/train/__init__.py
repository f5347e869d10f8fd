"""Trains the served model on local text, for completions that look like it."""
