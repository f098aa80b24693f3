"""Selection rules: what a search costs, and what it may show."""
