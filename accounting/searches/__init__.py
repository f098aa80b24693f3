"""The kinds of search: what each one runs, charges, stores, shows and has verified."""
