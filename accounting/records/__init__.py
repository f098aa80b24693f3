"""What a sweep folder holds: plans, draws, steps and results."""
