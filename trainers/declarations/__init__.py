"""What a trial declares beside its method: batches, schedules, losses, scores. Without torch."""
