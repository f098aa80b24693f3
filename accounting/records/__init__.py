"""The records in a sweep folder: plans, draws, steps and results."""
