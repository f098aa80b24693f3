"""Restoration of ledgers that were lost, and copies of ledgers that go on as others."""
