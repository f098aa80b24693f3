"""Checks of models and their inputs before a charge, and the replacement of layers that fail them."""
