"""The hash chain of a ledger's entries, and the databases that store it."""
