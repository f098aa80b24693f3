"""What may be shown: a sweep's folder and its ledger made into pages. Imports no torch and no trainer."""
