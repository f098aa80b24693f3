"""Launchers of our own."""
