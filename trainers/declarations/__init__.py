"""Declarations of a trial besides its method: batch samplers, schedules, losses, scores. Without torch."""
