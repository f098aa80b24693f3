"""Data sets that the papers use."""
