"""Weights that are kept within a ball: post-processing, free of charge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Confined(Protocol):
    """What a method that projects its weights after every step is besides a `Trainer`: a radius is all it takes."""

    @property
    def radius(self) -> float:
        """The radius of the ball around 0 that all trainable weights together, as one vector, lie in."""
        ...


class Projection:
    """The projections of K runs side by side, each onto its own ball; whoever is not confined is left as it is."""

    def __init__(self, trainers: Sequence[object], like: Tensor) -> None:
        radii = [one.radius if isinstance(one, Confined) else math.inf for one in trainers]
        self._radii = None if min(radii) == math.inf else like.new_tensor(radii)[:, None].double()

    def __call__(self, weights: Tensor) -> None:
        """Shortens those of the weights [K, P] that are too long, in place."""
        import torch

        if self._radii is None:
            return
        norms = torch.linalg.vector_norm(weights, dim=1, keepdim=True, dtype=torch.float64)
        weights *= torch.where(norms > self._radii, self._radii / norms, torch.ones_like(norms))
