"""Events: frozen values that describe the mechanisms on private data."""
