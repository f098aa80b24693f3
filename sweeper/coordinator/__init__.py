"""The coordinator of a sweep: admission, attempts, workers and hidden searches."""
