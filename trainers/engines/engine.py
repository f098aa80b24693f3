"""The interface of every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from torch import Tensor, nn

from trainers.losses import CROSS_ENTROPY, Loss
from trainers.transforms import GradientTransform


class Engine(Protocol):
    """Computes the sum of transformed gradients of a loss, one gradient per unit.

    A unit is one example, or, where `sizes` are given, several that follow one another: its gradient is the mean of
    theirs, and the transform bounds this mean, once.

    *Guarantee*: each unit contributes its own gradient times its own factor and nothing else, so at most
    `transform.bound` in norm (up to the rounding of the sum), however many examples it has; one whose gradient is not
    finite, because of any of its examples, contributes exactly zero and leaves the others as they are. The chunk
    bounds memory and changes nothing beyond rounding. The model is returned as it came: no hooks, no gradients, the
    same mode. `stacks` says whether models of one architecture may be stacked in its place.
    """

    stacks: ClassVar[bool]

    def weighted_sum(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        transform: GradientTransform,
        chunk: int | None,
        sizes: Sequence[int] | None = None,
        loss: Loss = CROSS_ENTROPY,
    ) -> tuple[Tensor, Tensor]:
        """The sum [P] over the trainable parameters in their order, and the units' norms before the transform.

        Shapes: inputs [n, *shape], targets [n] as the loss has them; n may be 0; sizes, each at least 1, sum to n. The
        norms are one for each unit. At most `chunk` examples are in work at a time; None chooses by the size of the
        model and of its inputs.
        """
        ...
