"""What decides and runs: plans, admission, jobs. Nobody imports this package."""
