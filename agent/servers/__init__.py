"""Inference servers: finding their metrics pages, reading them, and naming what they say alike."""
