"""Accountants: an event, a delta and a kind of neighbours become an upper bound on epsilon."""
