"""Rounded noisy numbers in events: leaves of their own, beside the mechanisms of their run, or of runs on one batch.

So repetition and composition count them, a search has those of one try inside, and a run with more numbers than were
declared has an event that was not charged. `accounting/rounded_noise_price.py` says what they cost.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpsweep.accounting.events.build import (
    DpEvent,
    compose,
    leaves_with_counts,
    number_of_steps,
    rate_and_noise_of_gaussian_step_or_none,
    repeat,
    step_on_shared_subsample,
)
from dpsweep.accounting.events.types import Leaves, NonPrivateDpEvent, PoissonSampledDpEvent, RoundedNumberDpEvent
from dpsweep.accounting.rounded_noise_price import NUMBERS_OF_COUNT


def mechanisms_with_counts(event: DpEvent) -> Leaves:
    """The leaves with their multiplicities, without rounded numbers."""
    return tuple(pair for pair in leaves_with_counts(event) if not isinstance(pair[0], RoundedNumberDpEvent))


def number_of_rounded_numbers(event: DpEvent) -> int:
    """The rounded numbers beside the mechanisms of a composition, without those inside of its searches."""
    return sum(count for leaf, count in leaves_with_counts(event) if isinstance(leaf, RoundedNumberDpEvent))


def with_rounded_noise(run: DpEvent, numbers: int) -> DpEvent:
    """The run with rounded noise on so many numbers in each step; itself where nothing protects the records."""
    rounded = numbers * number_of_steps(run)
    if not rounded or any(isinstance(leaf, NonPrivateDpEvent) for leaf, _ in leaves_with_counts(run)):
        return run
    return compose([run, repeat(RoundedNumberDpEvent(), rounded)])


def with_rounded_counts(event: DpEvent, counts: int) -> DpEvent:
    """A table of so many counts, with the rounding of their noise."""
    return with_rounded_noise(event, NUMBERS_OF_COUNT * counts)


def runs_on_shared_batches(runs: Iterable[DpEvent]) -> DpEvent:
    """Runs of Poisson-sampled Gaussian steps with the *same* batches in every step; runs may have different lengths.

    *Source*: the concatenated sums of the runs are one sum, each part scaled by its noise. So every step is the
    `step_on_shared_subsample` of the runs that have not ended. Raises ValueError for runs of other steps.
    """
    shared: list[tuple[int, float, float]] = []
    parts: list[DpEvent] = []
    for run in runs:
        leaves = mechanisms_with_counts(run)
        parts.append(repeat(RoundedNumberDpEvent(), number_of_rounded_numbers(run)))
        step = rate_and_noise_of_gaussian_step_or_none(leaves[0][0]) if len(leaves) == 1 else None
        if step is None or not isinstance(leaves[0][0], PoissonSampledDpEvent):
            raise ValueError(f"Expected run={run} to repeat one Poisson-sampled Gaussian step.")
        shared.append((leaves[0][1], *step))
    if len(rates := {rate for _, rate, _ in shared}) > 1:
        raise ValueError(f"Expected sample_rate={sorted(rates)} of runs that share their batches to be one.")
    before = 0
    for steps in sorted({steps for steps, _, _ in shared}):
        noises = [noise for length, _, noise in shared if length >= steps]
        parts.append(repeat(step_on_shared_subsample(sample_rate=min(rates), noise_multipliers=noises), steps - before))
        before = steps
    return compose(parts)
