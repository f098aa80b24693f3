"""Projection of weights onto a ball: post-processing, at no privacy cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Confined(Protocol):
    """The additional interface of a `Trainer` that projects its weights after every step: it has a radius."""

    @property
    def radius(self) -> float:
        """The radius of the ball around 0 that contains all trainable weights as one vector."""
        ...


class Projection:
    """The projections of K runs at once, each onto its own ball; runs without a radius are not changed."""

    def __init__(self, trainers: Sequence[object], like: Tensor) -> None:
        radii = [one.radius if isinstance(one, Confined) else math.inf for one in trainers]
        self._radii = None if min(radii) == math.inf else like.new_tensor(radii)[:, None].double()

    def __call__(self, weights: Tensor) -> None:
        """Projects the weights [K, P] in place, each row onto its own ball."""
        import torch

        if self._radii is None:
            return
        norms = torch.linalg.vector_norm(weights, dim=1, keepdim=True, dtype=torch.float64)
        weights *= torch.where(norms > self._radii, self._radii / norms, torch.ones_like(norms))
