"""Selection rules: the price of a search, and the results that it may release."""
