"""One figure or table of a paper per file; each file defines `FIGURE`, and `make reproduce` takes its name."""
