"""What a page shows beside its maps: one exhibit per file."""
