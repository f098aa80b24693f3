"""Checks of models and their inputs before a charge."""
