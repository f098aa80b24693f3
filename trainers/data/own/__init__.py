"""Data sets that the user provides: arrays, tables and torch datasets."""
