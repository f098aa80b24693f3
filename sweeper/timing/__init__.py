"""How long a plan takes on this machine: steps timed on random inputs, and those of past sweeps."""
