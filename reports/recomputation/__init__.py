"""The program that recomputes a release's price without dpsweep, and the numbers that it reads."""
