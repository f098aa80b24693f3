"""The papers' figures, made again: what a paper claims, our numbers, and whether they say so; one file a figure."""
