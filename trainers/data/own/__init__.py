"""Data sets of the user's own."""
