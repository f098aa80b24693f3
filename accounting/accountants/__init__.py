"""Accountants: upper bounds on epsilon for an event, a delta and an adjacency."""
