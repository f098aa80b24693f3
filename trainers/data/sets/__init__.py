"""Data sets of the papers."""
