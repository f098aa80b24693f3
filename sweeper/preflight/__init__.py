"""Checks between the plan and its charge."""
