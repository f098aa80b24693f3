"""Per-example gradients of layers, and their norms."""
