"""The interface of engines, and their arguments: the examples of a step, and the task to do with their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from dpsweep.accounting.numbers import positive_int
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss
from dpsweep.trainers.engines.gradients.micro_batches import check_sizes
from dpsweep.trainers.methods.transforms import GradientTransform


@dataclass(frozen=True, eq=False)
class Minibatch:
    """The examples of a step: inputs [n, *shape], targets [n] or [n, *shape] in the loss's dtype; n may be 0.

    Without `sizes` a unit is one example. With `sizes`, unit i has the next sizes[i] examples; sizes are at least 1 and
    sum to n. The presence of `sizes` is declared and never depends on a draw, because it affects the choice of engine.
    """

    inputs: Tensor
    targets: Tensor
    sizes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.sizes is not None:
            check_sizes(self.sizes, len(self))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, part: slice) -> Minibatch:
        """Some of the examples, each as its own unit."""
        return Minibatch(self.inputs[part], self.targets[part])

    def parts(self, chunk: int, *, filled: bool = False) -> Iterator[tuple[Tensor, Tensor, int]]:
        """All inputs and targets in parts of at most `chunk` examples, with the number of examples in each.

        With `filled` the last part is padded with zeros, so that all parts have one shape, and all parts are copied:
        matrix products may round differently for another memory alignment.
        """
        for inputs, targets in zip(torch.split(self.inputs, chunk), torch.split(self.targets, chunk), strict=True):
            part = (_filled(inputs, chunk), _filled(targets, chunk)) if filled else (inputs, targets)
            yield *part, len(inputs)


@dataclass(frozen=True, kw_only=True)
class Task:
    """The computation for each unit: the gradient of `loss`, bounded by `transform`.

    An engine processes at most `chunk` examples at a time; None lets it choose by the size of the model and its inputs.
    `block` is the declared size of a batch, which is seldom exceeded; with it, all passes of all draws have one shape.
    """

    transform: GradientTransform
    loss: Loss = CROSS_ENTROPY
    chunk: int | None = None
    block: int | None = None

    def __post_init__(self) -> None:
        for name in ("chunk", "block"):
            if (value := getattr(self, name)) is not None:
                positive_int(name, value)

    def at_once(self, most: int) -> int:
        """The number of examples in a pass if `most` fit: a block, or one of the fewest equal parts of it."""
        fits = self.chunk or most
        return fits if self.block is None else -(-self.block // -(-self.block // fits))


class Engine(Protocol):
    """Computes the sum of transformed gradients of a loss, one gradient per unit.

    The gradient of a unit of several examples is the mean of its per-example gradients, and the transform bounds this
    mean once.

    *Guarantee*: each unit contributes its own gradient times its own factor and nothing else. So the norm of its
    contribution is at most `transform.bound`, for any number of examples. A unit with a non-finite gradient contributes
    exactly zero and does not change the others. Contributions are summed in float64. With a block, the shape of a pass
    and the algorithm for it depend on no record. The chunk bounds memory and changes only rounding. The model stays
    unchanged: no hooks, no gradients, the same mode. `stacks` says whether models of one architecture may be stacked
    instead of using this engine.
    """

    stacks: ClassVar[bool]

    def weighted_sum(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] in float64, by the trainable parameters in their order, and each unit's norm before bounding."""
        ...


def _filled(rows: Tensor, length: int) -> Tensor:
    """A copy of these rows, padded with zeros to `length` rows."""
    padded = rows.new_zeros(length, *rows.shape[1:])
    padded[: len(rows)] = rows
    return padded
