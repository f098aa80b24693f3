"""Batches cut into work that fits in memory, where one unit may have several examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class MicroBatch:
    """Whole units of one size that follow one another in a batch: examples from `first` on, `sizes` of them each."""

    first: int
    sizes: tuple[int, ...]

    @property
    def examples(self) -> slice:
        """Where its examples stand in the batch."""
        return slice(self.first, self.first + sum(self.sizes))

    def owners(self) -> Tensor:
        """To which of its units each example belongs, ascending."""
        return torch.arange(len(self.sizes)).repeat_interleave(torch.tensor(self.sizes))


def packed(sizes: Sequence[int], chunk: int) -> Iterator[MicroBatch]:
    """All units in their order, in packs of at most `chunk` examples; a unit with more is a pack of its own.

    Units of different sizes are in different packs: where a unit stands in its pack depends on its own size and on how
    many of this size come before it, never on others' sizes.
    """
    first, held = 0, 0
    gathered: list[int] = []
    for size in sizes:
        if gathered and (held + size > chunk or size != gathered[0]):
            yield MicroBatch(first=first, sizes=tuple(gathered))
            first, held, gathered = first + held, 0, []
        gathered.append(size)
        held += size
    if gathered:
        yield MicroBatch(first=first, sizes=tuple(gathered))


def check_sizes(sizes: Sequence[int], examples: int) -> None:
    """Raises ValueError unless each of a batch's examples belongs to exactly one unit, and each unit has one."""
    if min(sizes, default=1) < 1 or sum(sizes) != examples:
        raise ValueError(f"Expected sizes={list(sizes)} >= 1, {examples} together.")
