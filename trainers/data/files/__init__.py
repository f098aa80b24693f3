"""Files of data sets: downloads, checksums and formats."""
