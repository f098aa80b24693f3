"""What is claimed: events, upper bounds on epsilon, plans, the ledger. Imports neither torch nor hydra."""
