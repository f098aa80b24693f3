"""Exhibits of a page in addition to its score maps: one exhibit per file."""
