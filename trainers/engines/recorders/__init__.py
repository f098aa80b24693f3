"""Recorders of per-example gradients: one forward and backward pass of a model, layer by layer."""
