"""The Python API: plans, sweeps and their results as values, for programs and notebooks."""
