"""Frozen features: extractors with public weights, and their outputs as the inputs of a model."""
