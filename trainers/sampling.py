"""Which records take part in a step, and the event that says so.

The sampler that draws is the sampler that is charged: `event` and `draw` compute one sample rate in one
place, from public numbers only. `records` is the declared, nominal size of the training part; `available` is
how many records there really are, which is private: it decides how many coins are tossed, never how they are
weighted. Where units have several records, it is units that are drawn and counted, here and in the event: "record"
below stands for one unit.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from accounting.events import DpEvent, poisson_gaussian, without_replacement_gaussian
from trainers.validation import positive_int

if TYPE_CHECKING:
    from numpy.typing import NDArray


_SPREAD = 4  # standard deviations above the mean: a second round of gaps is rare, and only a matter of time


class Sampler(Hashable, Protocol):
    """Draws the records of a step, and declares what a step costs.

    *Guarantee*: a step that adds Gaussian noise to a bounded sum over `draw` is the mechanism `event`.
    """

    @property
    def batch_size(self) -> int:
        """The public number that sums are divided by, whatever was drawn."""
        ...

    def event(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """One step on a data set of nominal size `records`."""
        ...

    def draw(
        self, rows: int, available: int, records: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of the `available` records take part in one step, drawn `rows` times, each time independently.

        The records of the first draw come before those of the second, and so on: distinct, ascending, perhaps none;
        and how many each draw has [rows].
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Poisson:
    """Every record takes part independently with probability batch_size / records.

    Source: Abadi et al. 2016, Section 3.1; Mironov, Talwar, Zhang 2019.
    """

    batch_size: int

    def __post_init__(self) -> None:
        positive_int("batch_size", self.batch_size)

    def event(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """One Poisson-sampled Gaussian step at the rate batch_size / records."""
        return poisson_gaussian(sample_rate=self._sample_rate(records), noise_multiplier=noise_multiplier)

    def draw(
        self, rows: int, available: int, records: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The records whose coins fell right, one coin each at the rate batch_size / records.

        Drawn is how many coins pass from one that falls right to the next, which is geometric: the same law, and work
        in proportion to the batch, not to the data. The coins of all draws are one sequence.
        """
        coins = _fallen_right(rows * available, self._sample_rate(records), rng)
        ends = np.searchsorted(coins, available * np.arange(1, rows + 1))
        sizes = np.diff(ends, prepend=0)
        return coins - np.repeat(available * np.arange(rows), sizes), sizes

    def _sample_rate(self, records: int) -> float:
        positive_int("records", records)
        if self.batch_size > records:
            raise ValueError(f"Expected batch_size={self.batch_size} <= records={records}.")
        return self.batch_size / records


@dataclass(frozen=True, kw_only=True)
class FixedSize:
    """Exactly `batch_size` of the records, drawn uniformly without replacement at every step.

    Batches of fixed size are for neighbours of equal number: they are priced under REPLACE_ONE alone, where the number
    of records is public. Source: Wang, Balle, Kasiviswanathan 2019; the sampling of Yang et al. 2022.
    """

    batch_size: int

    def __post_init__(self) -> None:
        positive_int("batch_size", self.batch_size)

    def event(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """One Gaussian step on `batch_size` of so many records."""
        return without_replacement_gaussian(
            records=records, batch_size=self.batch_size, noise_multiplier=noise_multiplier
        )

    def draw(
        self, rows: int, available: int, records: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A uniform subset for each row; ValueError where there are fewer records than were declared and charged."""
        if available < records:
            raise ValueError(f"Expected records={available} to be the {records} that were declared, or more.")
        drawn = [np.sort(rng.choice(available, self.batch_size, replace=False, shuffle=False)) for _ in range(rows)]
        return np.concatenate(drawn), np.full(rows, self.batch_size)


def _fallen_right(coins: int, rate: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """The positions, ascending, at which a row of so many coins of this rate falls right."""
    drawn, passed = [np.empty(0, dtype=np.int64)], 0
    while passed < coins:
        expected = (coins - passed) * rate
        gaps = rng.geometric(rate, size=int(expected + _SPREAD * math.sqrt(expected)) + 1)
        drawn.append(passed - 1 + np.cumsum(gaps, dtype=np.int64))
        passed = int(drawn[-1][-1]) + 1
    positions = np.concatenate(drawn)
    return positions[: np.searchsorted(positions, coins)]
