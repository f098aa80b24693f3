"""Data sets of sequences, whose records have a label for each position."""
