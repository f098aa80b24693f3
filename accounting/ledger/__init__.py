"""The ledger: accounts, their charges, the attempts started on them, and this machine's memory of the chain."""
