"""Data augmentation: a unit's gradient is the mean over several random copies of its examples, at the same cost.

A declaration of an augmentation imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpsweep.accounting.codec import positive_int

if TYPE_CHECKING:
    from torch import Tensor


class Augmentation(Protocol):
    """Replaces each example by several random copies.

    *Guarantee*: each copy is a function of its original and of independent random draws, so no copy depends on other
    examples. All copies belong to the unit of their original.
    """

    @property
    def multiplicity(self) -> int:
        """The number of copies of each example."""

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raises ValueError if this augmentation does not fit examples of this shape."""

    def augmented_copies(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        """The copies [n * multiplicity, *shape] of inputs [n, *shape]; copies of one example are adjacent."""


@dataclass(frozen=True, kw_only=True)
class ShiftFlip:
    """Images shifted by up to `pixels` in each direction, padded by reflection, and mirrored with probability 1/2.

    Source: De, Berrada, Hayes, Smith, Balle 2022, Section 3 (augmentation multiplicity).
    """

    multiplicity: int
    pixels: int

    def __post_init__(self) -> None:
        positive_int("multiplicity", self.multiplicity)
        positive_int("pixels", self.pixels)

    def check_shape(self, shape: Sequence[int]) -> None:
        """Refuse examples that are not images larger than the shifts."""
        if len(shape) != 3 or min(shape[1:]) <= self.pixels:
            raise ValueError(
                f"Expected dataset.shape={list(shape)} to be (channels, height, width) with augmentation=shift_flip, "
                f"more than {self.pixels} high and wide."
            )

    def augmented_copies(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        """The copies, gathered from the padded images at random positions."""
        import torch
        from torch.nn.functional import pad

        originals = torch.arange(len(inputs), device=inputs.device).repeat_interleave(self.multiplicity)
        shifts = rng.integers(2 * self.pixels + 1, size=(2, len(originals), 1))
        mirrored = rng.integers(2, size=(len(originals), 1)).astype(bool)
        high, wide = (np.arange(size) for size in inputs.shape[2:])
        rows, columns = high + shifts[0], np.where(mirrored, wide[::-1], wide) + shifts[1]
        down, across = (torch.from_numpy(places).to(inputs.device) for places in (rows, columns))
        padded = pad(inputs, [self.pixels] * 4, mode="reflect").movedim(1, 3)
        return padded[originals[:, None, None], down[:, :, None], across[:, None, :]].movedim(3, 1).contiguous()
