"""Checks after planning and before the charge."""
