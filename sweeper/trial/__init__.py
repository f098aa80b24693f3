"""A trial: what its config declares, and its training run."""
