"""A job: the process that runs a block of trials, its locks and its stop."""
