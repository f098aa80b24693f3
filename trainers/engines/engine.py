"""The interface of every engine."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from trainers.transforms import GradientTransform


class Engine(Protocol):
    """Computes the sum of transformed per-example gradients of the cross-entropy loss.

    *Guarantee*: each example contributes its own gradient times its own factor and nothing else, so at most
    `transform.bound` in norm (up to the rounding of the sum); one whose gradient is not finite contributes
    exactly zero and leaves the others as they are. The chunk bounds memory and changes nothing beyond
    rounding. The model is returned as it came: no hooks, no gradients, the same mode.
    """

    def weighted_sum(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        transform: GradientTransform,
        chunk: int | None,
    ) -> tuple[Tensor, Tensor]:
        """The sum [P] over the trainable parameters in their order, and the norms [n] before the transform.

        Shapes: inputs [n, *shape], targets [n] of int64; n may be 0. At most `chunk` examples are in work at
        a time; None chooses by the size of the model and of its inputs.
        """
        ...
