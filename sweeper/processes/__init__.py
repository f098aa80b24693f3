"""Processes that never outlive the one that started them."""
