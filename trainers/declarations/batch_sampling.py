"""Which records take part in a step, and the event that says so.

The sampler that draws is the sampler that is charged: `event` and `draw` compute one sample rate in one
place, from public numbers only. `records` is the declared, nominal size of the training part; `available` is
how many records there really are, which is private: it decides how many coins are tossed, never how they are
weighted. Where units have several records, it is units that are drawn and counted, here and in the event: "record"
below stands for one unit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpsweep.accounting.events.build import (
    DpEvent,
    non_private,
    poisson_gaussian,
    shuffled_gaussian,
    without_replacement_gaussian,
)
from dpsweep.accounting.numbers import positive_int

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

    def period(self, records: int) -> int:
        """How many steps are drawn, charged and ended together, at that nominal size: one where steps are alike."""
        ...

    def event(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """A period's steps on a data set of nominal size `records`."""
        ...

    def draw(
        self, rows: int, available: int, records: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of the `available` records take part in a period's steps, drawn `rows` times, each independently.

        The records of the first step's first draw come before those of its second, and so on, and all of those before
        the second step's: distinct in a draw, ascending, perhaps none; and how many each draw has [period * rows].
        """
        ...


def step_events(
    sampler: Sampler, factors: Mapping[float, int], *, records: int, noise_multiplier: float, public: bool
) -> Counter[DpEvent]:
    """What steps do to the records, so many at each factor on the noise multiplier: how often each event occurs.

    A period that was begun counts as a whole one. Records declared public are protected by no noise at all. Raises
    ValueError where the steps of an epoch, which are one event, would have unlike noise.
    """
    period = sampler.period(records)
    if period > 1 and len(factors) > 1:
        raise ValueError("Expected bounds.noise to be multiplier where records are shuffled: an epoch has one noise.")
    found: Counter[DpEvent] = Counter()
    for factor, steps in factors.items():
        event = sampler.event(records=records, noise_multiplier=noise_multiplier * factor)
        found[non_private() if public else event] += -(-steps // period)
    return found


@dataclass(frozen=True, kw_only=True)
class Poisson:
    """Every record takes part independently with probability batch_size / records.

    Source: Abadi et al. 2016, Section 3.1; Mironov, Talwar, Zhang 2019.
    """

    batch_size: int

    def __post_init__(self) -> None:
        positive_int("batch_size", self.batch_size)

    def period(self, records: int) -> int:
        """Steps are alike."""
        return 1

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

    def period(self, records: int) -> int:
        """Steps are alike."""
        return 1

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


@dataclass(frozen=True, kw_only=True)
class Shuffle:
    """Every record takes part in one step of each epoch, whichever falls to it; nothing is amplified.

    *Guarantee*: an epoch of ceil(records / batch_size) steps, a public number, is one Gaussian mechanism. Each record's
    step is uniform and independent of all others', so that another record's presence moves nobody: whatever the others'
    steps are, they are equally likely without it, and one step of the epoch has it in its sum. Batches that were cut
    off a permutation, at sizes that depend on how many records there are, would all shift. Their sizes vary about
    records / period, which is at most `batch_size`. Whoever stops in the middle of an epoch could not go on with the
    rest of it, since no draw is kept: runs stop, and are priced, by epochs.
    """

    batch_size: int

    def __post_init__(self) -> None:
        positive_int("batch_size", self.batch_size)

    def period(self, records: int) -> int:
        """The steps of an epoch."""
        positive_int("records", records)
        if self.batch_size > records:
            raise ValueError(f"Expected batch_size={self.batch_size} <= records={records}.")
        return -(-records // self.batch_size)

    def event(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """An epoch: one Gaussian mechanism."""
        return shuffled_gaussian(epochs=1, steps=self.period(records), noise_multiplier=noise_multiplier)

    def draw(
        self, rows: int, available: int, records: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The records by the steps that fell to them."""
        steps = self.period(records)
        place = rng.integers(steps, size=(rows, available)) * rows + np.arange(rows)[:, None]
        order = np.argsort(place, axis=None, kind="stable")
        return order % max(1, available), np.bincount(place.ravel(), minlength=steps * rows)


def check_epochs(sampler: Sampler, records: int, **steps: int | None) -> None:
    """Raises ValueError where one of these numbers of steps is not of whole periods."""
    period = sampler.period(records)
    for name, value in steps.items():
        if value is not None and value % period:
            raise ValueError(f"Expected {name}={value} to be whole epochs of {period} steps.")


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
