"""The ledger: what was charged to which account, what began and ended, and what this machine remembers of it."""
