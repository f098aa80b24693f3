"""The hash chain of a ledger's lines, and the databases that hold it."""
