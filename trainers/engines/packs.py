"""Batches cut into work that fits in memory, where one unit may have several examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from trainers.engines.engine import Minibatch


@dataclass(frozen=True, kw_only=True, eq=False)
class Pack:
    """Whole units that follow one another in a batch: the examples from `first` on, `sizes` of them each."""

    first: int
    sizes: tuple[int, ...]

    @property
    def examples(self) -> slice:
        """Where its examples stand in the batch."""
        return slice(self.first, self.first + sum(self.sizes))

    def owners(self) -> Tensor:
        """To which of its units each example belongs, ascending."""
        return torch.arange(len(self.sizes)).repeat_interleave(torch.tensor(self.sizes))


def packed(sizes: Sequence[int], chunk: int) -> Iterator[Pack]:
    """All units in their order, in packs of at most `chunk` examples; a unit with more is a pack of its own."""
    first, held = 0, 0
    gathered: list[int] = []
    for size in sizes:
        if gathered and held + size > chunk:
            yield Pack(first=first, sizes=tuple(gathered))
            first, held, gathered = first + held, 0, []
        gathered.append(size)
        held += size
    if gathered:
        yield Pack(first=first, sizes=tuple(gathered))


def unit_means(
    each_example: Callable[[Minibatch], Iterator[list[Tensor]]],
    parameters: list[nn.Parameter],
    chunk: int,
    batch: Minibatch,
    sizes: Sequence[int],
) -> Iterator[list[Tensor]]:
    """The units' gradients, pack by pack: the means of their examples', which `each_example` has chunk by chunk.

    They are added up by index, not by a product with a matrix of zeros and ones: zero times infinity would carry one
    unit's broken gradient into the others'.
    """
    for pack in packed(sizes, chunk):
        owners = pack.owners().to(batch.inputs.device)
        means = [parameter.new_zeros(len(pack.sizes), *parameter.shape) for parameter in parameters]
        for gradients, owner in zip(each_example(batch[pack.examples]), torch.split(owners, chunk), strict=True):
            for mean, gradient in zip(means, gradients, strict=True):
                mean.index_add_(0, owner, gradient)
        counts = torch.tensor(pack.sizes, device=batch.inputs.device)
        yield [mean.div_(counts.view(-1, *[1] * (mean.ndim - 1))) for mean in means]


def check_sizes(sizes: Sequence[int], examples: int) -> None:
    """Raises ValueError unless each of a batch's examples belongs to exactly one unit, and each unit has one."""
    if min(sizes, default=1) < 1 or sum(sizes) != examples:
        raise ValueError(f"Expected sizes={list(sizes)} >= 1, {examples} together.")
