"""Runs of scripts of the user's own: what they are given, the process that they are, and what they hand back."""
