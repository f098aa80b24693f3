"""The papers' figures and tables; each file defines `FIGURES` by the names that `make reproduce` takes."""
