"""Copies of every image in place of the image: what a unit's gradient is the mean of, at the same price.

A declaration of an augmentation imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpsweep.accounting.numbers import positive_int

if TYPE_CHECKING:
    from torch import Tensor


class Augmentation(Protocol):
    """Makes several examples of one.

    *Guarantee*: each copy is a function of its own original and of draws that are independent of all others, so that
    nobody's copies depend on who else is there; all of them stay with the unit that the original belongs to.
    """

    @property
    def multiplicity(self) -> int:
        """How many copies each example has."""
        ...

    def check(self, shape: Sequence[int]) -> None:
        """Raises ValueError where examples of this shape cannot be augmented so."""
        ...

    def copies(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        """The copies [n * multiplicity, *shape] of inputs [n, *shape], those of an example one after another."""
        ...


@dataclass(frozen=True, kw_only=True)
class ShiftFlip:
    """Images shifted by up to `pixels` each way, their edges filled by reflection, and mirrored half of the time.

    Source: De, Berrada, Hayes, Smith, Balle 2022, Section 3 (augmentation multiplicity).
    """

    multiplicity: int
    pixels: int

    def __post_init__(self) -> None:
        positive_int("multiplicity", self.multiplicity)
        positive_int("pixels", self.pixels)

    def check(self, shape: Sequence[int]) -> None:
        """They must be images, larger than the shifts."""
        if len(shape) != 3 or min(shape[1:]) <= self.pixels:
            raise ValueError(
                f"Expected dataset.shape={list(shape)} to be (channels, height, width) with augmentation=shift_flip, "
                f"more than {self.pixels} high and wide."
            )

    def copies(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        """Gathered from the padded images, each at places of its own."""
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
