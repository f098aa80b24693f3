"""The kinds of search: how each one is charged, queued and logged."""
