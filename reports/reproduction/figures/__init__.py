"""One figure or table of a paper a file; each file has one `FIGURE`, and its name is what `make reproduce` takes."""
