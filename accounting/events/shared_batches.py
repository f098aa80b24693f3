"""The event of runs that are trained on the same batches."""

from __future__ import annotations

from collections.abc import Iterable

from dpsweep.accounting.events.build import (
    DpEvent,
    compose,
    rate_and_noise_of_gaussian_step_or_none,
    repeat,
    step_on_shared_subsample,
)
from dpsweep.accounting.events.rounded_noise import mechanisms_with_counts, number_of_rounded_numbers
from dpsweep.accounting.events.types import PoissonSampledDpEvent, RoundedNumberDpEvent


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
