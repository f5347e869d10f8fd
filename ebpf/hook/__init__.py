"""What a server loads, so that the agent sees the edges of its spans."""
