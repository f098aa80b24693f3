"""Privacy profiles and privacy-loss distributions, their composition, and their changes by sampling and selection."""
