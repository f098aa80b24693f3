"""The interface of every engine, and what it is asked: for which examples, and what to do with their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from trainers.engines.packs import check_sizes
from trainers.losses import CROSS_ENTROPY, Loss
from trainers.transforms import GradientTransform
from trainers.validation import positive_int


@dataclass(frozen=True, eq=False)
class Minibatch:
    """The examples of a step: inputs [n, *shape], targets [n] as the loss has them; n may be 0.

    A unit is one example, or, where `sizes` are given, so many that follow one another; sizes are each at least 1 and
    sum to n.
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
        """Some of the examples, each a unit of its own."""
        return Minibatch(self.inputs[part], self.targets[part])

    def parts(self, chunk: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All inputs and targets, at most so many at a time."""
        return zip(torch.split(self.inputs, chunk), torch.split(self.targets, chunk), strict=True)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What to do with each unit: differentiate this loss, and bound the gradient by this transform.

    At most `chunk` examples are in work at a time; None chooses by the size of the model and of its inputs.
    """

    transform: GradientTransform
    loss: Loss = CROSS_ENTROPY
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.chunk is not None:
            positive_int("chunk", self.chunk)


class Engine(Protocol):
    """Computes the sum of transformed gradients of a loss, one gradient per unit.

    The gradient of a unit of several examples is the mean of theirs, and the transform bounds this mean, once.

    *Guarantee*: each unit contributes its own gradient times its own factor and nothing else, so at most
    `transform.bound` in norm (up to the rounding of the sum), however many examples it has; one whose gradient is not
    finite, because of any of its examples, contributes exactly zero and leaves the others as they are. The chunk
    bounds memory and changes nothing beyond rounding. The model is returned as it came: no hooks, no gradients, the
    same mode. `stacks` says whether models of one architecture may be stacked in its place.
    """

    stacks: ClassVar[bool]

    def weighted_sum(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] over the trainable parameters in their order, and each unit's norm before the transform."""
        ...
