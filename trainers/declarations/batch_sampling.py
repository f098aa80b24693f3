"""Batch samplers: each draws the records of a step and declares the event that a step costs.

The same sampler is charged and drawn from: `event` and `draw` use one sample rate, computed in one place from public
numbers only. `records` is the declared, nominal size of the training part; `available` is the true number of records,
which is private: it determines the number of Bernoulli draws, never their probability. If units have several records,
samplers draw and count units, here and in the event: "record" below stands for one unit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from dpsweep.accounting.codec import positive_int
from dpsweep.accounting.events.build import (
    DpEvent,
    non_private,
    poisson_gaussian,
    random_allocation,
    shuffled_gaussian,
    without_replacement_gaussian,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Batches = tuple[NDArray[np.int64], NDArray[np.int64]]


_SPREAD = 4  # standard deviations above the mean: a second round of gaps is rare and only costs time


class Sampler(Hashable, Protocol):
    """Draws the records of a step, and declares the event that a step costs.

    *Guarantee*: a step that adds Gaussian noise to a bounded sum over `draw` is the mechanism `event`.
    """

    @property
    def batch_size(self) -> int:
        """The public divisor of the sums, independent of the number of records drawn."""

    def steps_per_period(self, records: int) -> int:
        """The number of steps that are drawn, charged and ended together, at this nominal size; often 1."""

    def event_per_period(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """The event of one period's steps on a data set of nominal size `records`."""

    def draw_batch_indices(self, rows: int, available: int, records: int, rng: np.random.Generator) -> Batches:
        """The indices of the records in each step of a period, for `rows` independent draws, and the batch sizes.

        The indices are sorted by step, then by draw. Within one draw of one step they are distinct and ascending, and
        there may be none. The batch sizes [period * rows] have the same order. Indices are below `available`.

        Where the number of records is private, each record joins independently of all others, whatever `available` is:
        the empty slots of a part draw as well, for their batch sizes alone (`dpsweep.trainers.data.places`).
        """


def privacy_event_counts_of_run(
    sampler: Sampler, factors: Mapping[float, int], *, records: int, noise_multiplier: float, public: bool
) -> Counter[DpEvent]:
    """The number of times that each event occurs; `factors` maps a factor on the noise multiplier to its steps.

    A period that was begun counts as a whole one. For records declared public the event is non-private. Raises
    ValueError if the steps of one epoch, which are one event, would have different noise.
    """
    period = sampler.steps_per_period(records)
    if period > 1 and len(factors) > 1:
        raise ValueError(
            "Expected bounds.noise to be multiplier where an epoch of shuffled records, or a cycle, is one access."
        )
    counts: Counter[DpEvent] = Counter()
    for factor, steps in factors.items():
        event = sampler.event_per_period(records=records, noise_multiplier=noise_multiplier * factor)
        counts[non_private() if public else event] += -(-steps // period)
    return counts


@dataclass(frozen=True, kw_only=True)
class _BatchOfSize:
    """The batch size of a sampler, and the period of those that draw every step in the same way."""

    batch_size: int

    def __post_init__(self) -> None:
        positive_int("batch_size", self.batch_size)

    def steps_per_period(self, records: int) -> int:
        """1: every step is drawn in the same way."""
        return 1


@dataclass(frozen=True, kw_only=True)
class Poisson(_BatchOfSize):
    """Every record takes part independently with probability batch_size / records.

    Source: Abadi et al. 2016, Section 3.1; Mironov, Talwar, Zhang 2019.
    """

    def event_per_period(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """One Poisson-sampled Gaussian step at the rate batch_size / records."""
        return poisson_gaussian(sample_rate=self._sample_rate(records), noise_multiplier=noise_multiplier)

    def draw_batch_indices(self, rows: int, available: int, records: int, rng: np.random.Generator) -> Batches:
        """The records with a successful Bernoulli trial, one trial each at the rate batch_size / records."""
        return draw_by_independent_coins(rows, available, self._sample_rate(records), rng)

    def _sample_rate(self, records: int) -> float:
        positive_int("records", records)
        if self.batch_size > records:
            raise ValueError(f"Expected batch_size={self.batch_size} <= records={records}.")
        return self.batch_size / records


@dataclass(frozen=True, kw_only=True)
class CyclicPoisson(_BatchOfSize):
    """Poisson sampling from one of `parts` fixed parts of the records, the parts in turn; one part is all records.

    *Guarantee*: a record's own bytes, or its position under REPLACE_ONE, and a public key decide its part, so no other
    record's part changes where it is added, removed or replaced. A step samples its part at the rate
    parts * batch_size / records. The parts are about equal; their true sizes are private and nowhere used. A record
    takes part in at most one step of a cycle of `parts` steps, so a cycle is one access. Runs stop and are priced by
    whole cycles.
    """

    works: ClassVar[tuple[str, ...]] = ("choquette2023amplified",)

    parts: int

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_int("parts", self.parts)

    def steps_per_period(self, records: int) -> int:
        """The steps of a cycle."""
        return self.parts

    def event_per_period(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """A cycle, in which every record takes part at most once; a step of DP-SGD if there is one part."""
        rate = self._sample_rate(records)
        if self.parts == 1:
            return poisson_gaussian(sample_rate=rate, noise_multiplier=noise_multiplier)
        return shuffled_gaussian(epochs=1, steps=self.parts, noise_multiplier=noise_multiplier, sample_rate=rate)

    def draw_batch_indices(self, rows: int, available: int, records: int, rng: np.random.Generator) -> Batches:
        """One step's draws from a part of `available` records, as indices into the part."""
        return draw_by_independent_coins(rows, available, self._sample_rate(records), rng)

    def _sample_rate(self, records: int) -> float:
        positive_int("records", records)
        if self.parts * self.batch_size > records:
            raise ValueError(
                f"Expected sampler.parts={self.parts} times sampler.batch_size={self.batch_size} <= records={records}: "
                "a step draws from one part."
            )
        return self.parts * self.batch_size / records


@dataclass(frozen=True, kw_only=True)
class FixedSize(_BatchOfSize):
    """Exactly `batch_size` of the records, drawn uniformly without replacement at every step.

    Batches of fixed size have a price only under REPLACE_ONE, where neighbours have the same, public number of
    records. Source: Wang, Balle, Kasiviswanathan 2019; the sampling of Yang et al. 2022.
    """

    works: ClassVar[tuple[str, ...]] = ("wang2019subsampled",)

    def event_per_period(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """One Gaussian step on `batch_size` of `records` records."""
        return without_replacement_gaussian(
            records=records, batch_size=self.batch_size, noise_multiplier=noise_multiplier
        )

    def draw_batch_indices(self, rows: int, available: int, records: int, rng: np.random.Generator) -> Batches:
        """A uniform subset for each row; ValueError if there are fewer records than were declared and charged."""
        if available < records:
            raise ValueError(f"Expected records={available} to be the {records} that were declared, or more.")
        batches = [np.sort(rng.choice(available, self.batch_size, replace=False, shuffle=False)) for _ in range(rows)]
        return np.concatenate(batches), np.full(rows, self.batch_size)


@dataclass(frozen=True, kw_only=True)
class Shuffle(_BatchOfSize):
    """Every record takes part in one random step of each epoch; there is no amplification by sampling.

    *Guarantee*: an epoch of ceil(records / batch_size) steps, a public number, is one Gaussian mechanism. Each record's
    step is uniform and independent of all others. Adding a record therefore leaves the distribution of the other
    records' steps unchanged, and the added record enters the sum of one step of the epoch. (Batches cut from a
    permutation would all shift, because their sizes depend on the number of records.) Batch sizes vary around
    records / period, which is at most `batch_size`. Runs stop and are priced by whole epochs: the draws are not
    stored, so a run could not resume within an epoch.
    """

    def steps_per_period(self, records: int) -> int:
        """The steps of an epoch."""
        positive_int("records", records)
        if self.batch_size > records:
            raise ValueError(f"Expected batch_size={self.batch_size} <= records={records}.")
        return -(-records // self.batch_size)

    def event_per_period(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """An epoch: one Gaussian mechanism."""
        return shuffled_gaussian(epochs=1, steps=self.steps_per_period(records), noise_multiplier=noise_multiplier)

    def draw_batch_indices(self, rows: int, available: int, records: int, rng: np.random.Generator) -> Batches:
        """The records, sorted by their random steps."""
        steps = self.steps_per_period(records)
        place = rng.integers(steps, size=(rows, available)) * rows + np.arange(rows)[:, None]
        order = np.argsort(place, axis=None, kind="stable")
        return order % max(1, available), np.bincount(place.ravel(), minlength=steps * rows)


@dataclass(frozen=True, kw_only=True)
class RandomAllocation(Shuffle):
    """The same batches as `Shuffle`, priced with the amplification by the secret step of each record.

    *Guarantee*: each record's step of an epoch is uniform, independent of all other records, and not released. Under
    REPLACE_ONE no amplification is known, and the price is that of `Shuffle`.
    Source: Feldman and Shenfeld 2025; `accounting/profiles/random_allocation.py` has the bound.
    """

    works: ClassVar[tuple[str, ...]] = ("feldman2025privacy",)

    def event_per_period(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """An epoch in which each record has a random step."""
        return random_allocation(epochs=1, steps=self.steps_per_period(records), noise_multiplier=noise_multiplier)


def number_of_parts(sampler: Sampler) -> int:
    """The number of parts of the records that the sampler takes in turn; 1 if it draws from all."""
    return sampler.parts if isinstance(sampler, CyclicPoisson) else 1


def check_steps_are_whole_periods(sampler: Sampler, records: int, **steps: int | None) -> None:
    """Raises ValueError if one of these numbers of steps is not a multiple of the sampler's period."""
    period = sampler.steps_per_period(records)
    for name, value in steps.items():
        if value is not None and value % period:
            word = "cycles" if isinstance(sampler, CyclicPoisson) else "epochs"
            raise ValueError(f"Expected {name}={value} to be whole {word} of {period} steps.")


def draw_by_independent_coins(rows: int, available: int, rate: float, rng: np.random.Generator) -> Batches:
    """The records of `rows` draws, each with one Bernoulli trial at this rate for every record, and the batch sizes.

    The code draws the gaps between successes, which are geometric: the distribution is the same, and the work is
    proportional to the batch, not to the data. The trials of all draws form one sequence.
    """
    successes = _positions_of_bernoulli_successes(rows * available, rate, rng)
    ends = np.searchsorted(successes, available * np.arange(1, rows + 1))
    sizes = np.diff(ends, prepend=0)
    return successes - np.repeat(available * np.arange(rows), sizes), sizes


def _positions_of_bernoulli_successes(trials: int, rate: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """The ascending positions of the successes among this number of Bernoulli trials with probability `rate`."""
    blocks, position = [np.empty(0, dtype=np.int64)], 0
    while position < trials:
        expected = (trials - position) * rate
        gaps = rng.geometric(rate, size=int(expected + _SPREAD * math.sqrt(expected)) + 1)
        blocks.append(position - 1 + np.cumsum(gaps, dtype=np.int64))
        position = int(blocks[-1][-1]) + 1
    positions = np.concatenate(blocks)
    return positions[: np.searchsorted(positions, trials)]
