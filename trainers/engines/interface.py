"""The interface of every engine, and what it is asked: for which examples, and what to do with their gradients."""

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
    """The examples of a step: inputs [n, *shape], targets [n] as the loss has them; n may be 0.

    A unit is one example, or, where `sizes` are given, so many that follow one another; sizes are each at least 1 and
    sum to n. Whether they are given is declared, and never depends on what was drawn: it decides which engine runs.
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

    def parts(self, chunk: int, *, filled: bool = False) -> Iterator[tuple[Tensor, Tensor, int]]:
        """All inputs and targets, at most so many at a time, and how many they are.

        With `filled` the last ones are followed by zeros, so that all parts have one shape, and all are copied:
        products of matrices round otherwise where numbers are aligned otherwise.
        """
        for inputs, targets in zip(torch.split(self.inputs, chunk), torch.split(self.targets, chunk), strict=True):
            part = (_filled(inputs, chunk), _filled(targets, chunk)) if filled else (inputs, targets)
            yield *part, len(inputs)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What to do with each unit: differentiate this loss, and bound the gradient by this transform.

    At most `chunk` examples are in work at a time; None chooses by the size of the model and of its inputs. `block` is
    how many a batch has, seldom more, by what was declared: with it, all passes have one shape whatever was drawn.
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
        """How many examples a pass has where `most` fit: a block, or the least equal parts of one."""
        fits = self.chunk or most
        return fits if self.block is None else -(-self.block // -(-self.block // fits))


class Engine(Protocol):
    """Computes the sum of transformed gradients of a loss, one gradient per unit.

    The gradient of a unit of several examples is the mean of theirs, and the transform bounds this mean, once.

    *Guarantee*: each unit contributes its own gradient times its own factor and nothing else, so at most
    `transform.bound` in norm, however many examples it has; one whose gradient is not finite, because of any of its
    examples, contributes exactly zero and leaves the others as they are. Contributions are added up in float64. With a
    block, the shape of a pass and the way that is chosen for it depend on no record. The chunk bounds memory and
    changes nothing beyond rounding. The model is returned as it came: no hooks, no gradients, the
    same mode. `stacks` says whether models of one architecture may be stacked in its place.
    """

    stacks: ClassVar[bool]

    def weighted_sum(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] in float64 over the trainable parameters in their order, and each unit's norm before that."""
        ...


def _filled(rows: Tensor, length: int) -> Tensor:
    """A copy of these rows, followed by zeros up to that length."""
    copied = rows.new_zeros(length, *rows.shape[1:])
    copied[: len(rows)] = rows
    return copied
