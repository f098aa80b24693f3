"""Mechanisms by the names and units of those who declare them, and what pages read from events.

Nothing here prices anything: the classes of `types.py` check what they hold, whoever builds them.
"""

from __future__ import annotations

import math

from dpsweep.accounting.codec import non_negative, positive
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial, Poisson, Stopping
from dpsweep.accounting.events.types import (
    FINAL,
    SEALED,
    BlackBoxDpEvent,
    DpEvent,
    EpochDpEvent,
    GaussianDpEvent,
    NoisyMaxDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PlanEvent,
    PoissonSampledDpEvent,
    RandomAllocationDpEvent,
    RandomStoppingDpEvent,
    RoundedNumberDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    StatedGaussianDpEvent,
    ThresholdDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    are_same_events,
    as_fixed_batch_step,
    as_gaussian_step,
    canonical_event,
    compose,
    from_json,
    leaves_with_counts,
    mechanisms_with_counts,
    mixture,
    number_of_rounded_numbers,
    poisson_sampled,
    repeat,
    runs_on_shared_batches,
    step_on_shared_subsample,
    to_json,
    worst_of_events,
    worst_plan_event_per_population,
)
from dpsweep.accounting.guarantee import Adjacency

__all__ = [
    "FINAL",
    "SEALED",
    "DpEvent",
    "PlanEvent",
    "are_same_events",
    "as_fixed_batch_step",
    "as_gaussian_step",
    "canonical_event",
    "compose",
    "from_json",
    "leaves_with_counts",
    "mechanisms_with_counts",
    "mixture",
    "number_of_rounded_numbers",
    "number_of_steps",
    "poisson_sampled",
    "repeat",
    "runs_on_shared_batches",
    "step_on_shared_subsample",
    "to_json",
    "worst_of_events",
    "worst_plan_event_per_population",
]

NUMBERS_OF_COUNT = 1024
"""A noisy count is rounded to a lattice that is 32 times finer, so that its intervals hold: its log-ratio is at most
32 * LOG_RATIO. What it costs grows at least like the square root of the numbers, so it counts as 32^2 of them."""

NEVER = 2.0**-188
"""Bound on the probability that a secret part has more units than slots (`trainers/data/places.py`), or that a number
has noise beyond 16 standard deviations, whose rounding nothing bounds."""


def no_access() -> DpEvent:
    """No access at all."""
    return NoOpDpEvent()


def non_private() -> DpEvent:
    """An access without protection: every accountant returns infinity."""
    return NonPrivateDpEvent()


def black_box(*, epsilon: float, delta: float, adjacency: Adjacency) -> DpEvent:
    """A mechanism known only by its claim, which holds for this adjacency only."""
    return BlackBoxDpEvent(epsilon=float(epsilon), delta=float(delta), adjacency=Adjacency(adjacency))


def gaussian(*, noise_multiplier: float) -> DpEvent:
    """A Gaussian mechanism on a sum to which each record adds a vector of norm at most 1."""
    return GaussianDpEvent(noise_multiplier=float(noise_multiplier))


def noisy_count(*, noise_std: float) -> DpEvent:
    """One count with Gaussian noise: its sensitivity is 1 for both adjacencies."""
    return StatedGaussianDpEvent(noise_multiplier=float(noise_std))


def output_perturbation(*, noise_std: float, sensitivity: float, adjacency: Adjacency) -> DpEvent:
    """Gaussian noise on a finished model, with a sensitivity that was proved for this adjacency.

    *Source*: Chaudhuri, Monteleoni, Sarwate 2011; for strongly convex losses the sensitivity is 2 l / (n lambda) under
    replacement.
    """
    positive("sensitivity", sensitivity)
    return StatedGaussianDpEvent(noise_multiplier=noise_std / sensitivity, adjacency=Adjacency(adjacency))


def noisy_table(*, noise_std: float, adjacency: Adjacency) -> DpEvent:
    """A table of counts, each with Gaussian noise of this standard deviation; a record adds numbers >= 0 of norm <= 1.

    *Guarantee*: the L2 sensitivity is 1 where a record is added or removed, and the square root of 2 where one is
    replaced. *Proof*: a record adds a vector v of numbers >= 0 with |v| <= 1, as numbers that sum to 1 have it. Another
    record in its place changes the table by v - w, and |v - w|^2 = |v|^2 + |w|^2 - 2 v.w <= 2, since v.w >= 0. Both are
    attained by records in a single cell each. A quotient is rounded so that the noise never counts for more than it is.
    """
    if Adjacency(adjacency) is Adjacency.REPLACE_ONE:
        non_negative("noise_std", noise_std)
        multiplier = math.nextafter(noise_std / math.sqrt(2), 0.0)
        return StatedGaussianDpEvent(noise_multiplier=multiplier, adjacency=Adjacency.REPLACE_ONE)
    return gaussian(noise_multiplier=noise_std)


def noisy_max(*, noise_scale: float) -> DpEvent:
    """The index of the largest of several counts with Gumbel noise of this scale; the counts are not released."""
    return NoisyMaxDpEvent(noise_scale=float(noise_scale))


def poisson_gaussian(*, sample_rate: float, noise_multiplier: float) -> DpEvent:
    """One step of DP-SGD: every record takes part independently with probability `sample_rate`."""
    return PoissonSampledDpEvent(float(sample_rate), gaussian(noise_multiplier=noise_multiplier))


def truncated_poisson_gaussian(
    *, records: int, sample_rate: float, largest_batch: int, noise_multiplier: float
) -> DpEvent:
    """A Poisson-sampled step that uses a uniform subset of `largest_batch` records if more were drawn.

    *Guarantee*: prices hold for data sets of at most `records` records; more records would be cut more often. So
    `records` is a bound that is declared and enforced, and not the nominal number that other samplers divide by.
    """
    return TruncatedSubsampledGaussianDpEvent(records, float(sample_rate), largest_batch, float(noise_multiplier))


def without_replacement_gaussian(*, records: int, batch_size: int, noise_multiplier: float) -> DpEvent:
    """A step on exactly `batch_size` of `records` records, drawn uniformly without replacement."""
    return SampledWithoutReplacementDpEvent(records, batch_size, gaussian(noise_multiplier=noise_multiplier))


def shuffled_gaussian(*, epochs: int, steps: int, noise_multiplier: float, sample_rate: float = 1.0) -> DpEvent:
    """Epochs of `steps` steps with every record in exactly one step, in any order; there is no amplification.

    *Source*: adaptive parallel composition (McSherry 2009, Theorem 4), since a record enters one step: an epoch is one
    Gaussian mechanism. With a `sample_rate`, cycles of Poisson samples (`trainers/declarations/correlated_noise.py`).
    """
    return repeat(EpochDpEvent(steps, float(noise_multiplier), sampling_probability=float(sample_rate)), epochs)


def random_allocation(*, epochs: int, steps: int, noise_multiplier: float) -> DpEvent:
    """Epochs of `steps` steps with every record in one step of each, drawn uniformly and independently for each record.

    *Source*: Feldman and Shenfeld 2025 (Privacy amplification by random allocation).
    """
    return repeat(RandomAllocationDpEvent(steps=steps, noise_multiplier=float(noise_multiplier)), epochs)


def adadp(*, sample_rate: float, noise_multiplier: float, iterations: int) -> DpEvent:
    """ADADP: each iteration computes two noisy gradients, at the start and after a half step.

    *Source*: Koskela and Honkela 2020 (Learning Rate Adaptation for Differentially Private Learning), Algorithm 1.
    """
    return repeat(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier), 2 * iterations)


def best_of_tries(
    event: DpEvent, tries: NegativeBinomial | Poisson | EachPoint, limit: int | None = None
) -> SelectionDpEvent:
    """The best of this number of independent runs of `event`; `limit` ends the search early."""
    return SelectionDpEvent(event=canonical_event(event), tries=tries, limit=limit)


def random_stopping(event: DpEvent, *, gamma: float, delta2: float) -> RandomStoppingDpEvent:
    """Liu and Talwar's random stopping: each try stops with probability gamma; at most ln(1/delta2)/gamma tries."""
    law = Stopping(gamma=float(gamma), limit=math.ceil(math.log(1 / delta2) / gamma))
    return RandomStoppingDpEvent(event=canonical_event(event), tries=law, delta2=delta2)


def above_threshold(event: DpEvent, *, gamma: float, limit: int) -> ThresholdDpEvent:
    """Tries until one reaches a public threshold, a random stop of probability gamma occurs, or `limit` is reached."""
    return ThresholdDpEvent(event=canonical_event(event), tries=Stopping(gamma=float(gamma), limit=limit))


def with_rounded_noise(run: DpEvent, numbers: int) -> DpEvent:
    """The run with rounded noise on so many numbers in each step; itself where nothing protects the records."""
    rounded = numbers * number_of_steps(run)
    if not rounded or any(isinstance(leaf, NonPrivateDpEvent) for leaf, _ in leaves_with_counts(run)):
        return run
    return compose([run, repeat(RoundedNumberDpEvent(), rounded)])


def with_rounded_counts(event: DpEvent, counts: int) -> DpEvent:
    """A table of so many counts, with the rounding of their noise."""
    return with_rounded_noise(event, NUMBERS_OF_COUNT * counts)


def as_epoch(event: DpEvent) -> tuple[int, float] | None:
    """(steps, noise_multiplier) of an epoch in which every record takes part once; else None."""
    if isinstance(event, EpochDpEvent | RandomAllocationDpEvent):
        return event.steps, event.noise_multiplier
    return None


def is_random_allocation(event: DpEvent) -> bool:
    """Whether the event is an epoch in which every record takes part in a secret, random step."""
    return isinstance(event, RandomAllocationDpEvent)


def noise_multiplier_of_perturbed_output(event: DpEvent) -> float | None:
    """The noise multiplier of noise on a finished model, whose sensitivity was proved for one adjacency; else None."""
    return event.noise_multiplier if isinstance(event, StatedGaussianDpEvent) and event.adjacency is not None else None


def noise_std_of_noisy_table(event: DpEvent) -> float | None:
    """The standard deviation of the noise on each count of a noisy table, to 12 digits; None for other events."""
    stated, step = noise_multiplier_of_perturbed_output(event), as_gaussian_step(event)
    std = math.sqrt(2) * stated if stated is not None else None if step is None else step[1]
    return None if std is None else float(f"{std:.12g}")


def number_of_steps(event: DpEvent) -> int:
    """The number of steps in a run of this event: one per mechanism; an epoch counts all of its steps."""
    return sum(count * getattr(leaf, "steps", 1) for leaf, count in mechanisms_with_counts(event))
