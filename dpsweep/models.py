"""Models for private training: `privatise(model)` replaces layers that mix examples."""

from dpsweep.trainers.models.replaced_layers import privatise

__all__ = ["privatise"]
