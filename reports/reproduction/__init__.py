"""Reproductions of the papers' figures: each claim, our numbers, and whether the claim holds; one file per figure."""
