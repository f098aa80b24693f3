"""Micro-batches: parts of a batch that fit in memory, where one unit may have several examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class MicroBatch:
    """Consecutive units of equal size in a batch: their examples begin at `first`, and unit i has sizes[i] examples."""

    first: int
    sizes: tuple[int, ...]

    @property
    def examples(self) -> slice:
        """The slice of its examples in the batch."""
        return slice(self.first, self.first + sum(self.sizes))

    def owners(self) -> Tensor:
        """The index of the unit of each example, ascending."""
        return torch.arange(len(self.sizes)).repeat_interleave(torch.tensor(self.sizes))


def packed(sizes: Sequence[int], chunk: int) -> Iterator[MicroBatch]:
    """All units in their order, in micro-batches of at most `chunk` examples; a larger unit is alone in one.

    Units of different sizes are in different micro-batches. So the position of a unit in its micro-batch depends on its
    own size and on the number of earlier units of this size, never on other sizes.
    """
    first, examples = 0, 0
    units: list[int] = []
    for size in sizes:
        if units and (examples + size > chunk or size != units[0]):
            yield MicroBatch(first=first, sizes=tuple(units))
            first, examples, units = first + examples, 0, []
        units.append(size)
        examples += size
    if units:
        yield MicroBatch(first=first, sizes=tuple(units))


def check_sizes(sizes: Sequence[int], examples: int) -> None:
    """Raises ValueError unless each example of a batch belongs to exactly one unit, and each unit has an example."""
    if min(sizes, default=1) < 1 or sum(sizes) != examples:
        raise ValueError(f"Expected sizes={list(sizes)} >= 1, {examples} together.")
