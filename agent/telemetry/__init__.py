"""The vocabulary that every part shares: metric names, samples, points, spans."""
