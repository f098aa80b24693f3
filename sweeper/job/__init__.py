"""Jobs: processes that train a block of trials, with their locks and stop requests."""
