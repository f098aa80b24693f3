"""The training loop: batches, noisy sums, checkpoints and curves."""
