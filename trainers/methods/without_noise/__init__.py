"""Methods without noise, for data that were declared public."""
