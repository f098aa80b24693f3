"""Engines: weighted sums of per-example gradients, one algorithm per file."""
