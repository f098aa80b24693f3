"""Engines: weighted sums of per-example gradients, one way of computing them per file."""
