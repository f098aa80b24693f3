"""Construction, composition and recognition of events: frozen values that describe the mechanisms on private data.

An event is declared before anything runs, accountants price it, and the run is compared with it. Only this module
constructs the classes of `types.py`; noise multipliers are defined here:

* `noise_multiplier` is the standard deviation of the noise on the *sum*, divided by the per-record norm bound (the
  clip norm, or 1 for normalisation), for every adjacency. Replacing a record moves the sum by up to twice the bound;
  accountants, not events, take this into account.
* Composition is flattened once: `DpEvent.leaves` turns nested repetition into (leaf, count) pairs with equal leaves
  merged, so no accountant has to handle n-fold repetition itself.
* The inner event of a sampled event or of a search is put into one canonical form when it is built.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpsweep.accounting import validation
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial, Poisson, Stopping
from dpsweep.accounting.events.types import (
    BlackBoxDpEvent,
    ComposedDpEvent,
    DpEvent,
    EpochDpEvent,
    GaussianDpEvent,
    Leaves,
    MixtureDpEvent,
    NoisyMaxDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RandomAllocationDpEvent,
    RandomStoppingDpEvent,
    RoundedNumberDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    SelfComposedDpEvent,
    StatedGaussianDpEvent,
    ThresholdDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    WorstDpEvent,
    count_equal_objects,
    from_json,
    merge_equal_events,
    to_json,
)
from dpsweep.accounting.guarantee import Adjacency

__all__ = ["DpEvent", "PlanEvent", "from_json", "to_json"]

FINAL = "final"
"""The first word of the names of the populations that only a final run reads."""

SEALED = "sealed"
"""The name of the population that only a card reads."""


@dataclass(frozen=True, kw_only=True)
class PlanEvent:
    """A plan's events on disjoint populations: the training records, and the held-out records for scores.

    `validation` is None if no private record is scored. `final` has the events of a final run on records that the
    search does not read, which are split into training and held-out records in the same way. `sealed` is the one query
    on a sealed part about the model that is handed over, None without one: no rule wraps or amplifies it.

    *Guarantee*: with one public, fixed split, every record is in one part, so the whole costs the pointwise maximum of
    the parts, not their sum (parallel composition).
    """

    training: DpEvent
    validation: DpEvent | None = None
    final: PlanEvent | None = None
    sealed: DpEvent | None = None

    @property
    def events_by_population(self) -> dict[str, DpEvent]:
        """The populations by name."""
        final = {} if self.final is None else self.final.events_by_population
        parts = {
            "training": self.training,
            "validation": self.validation,
            **{f"{FINAL} {name}": part for name, part in final.items()},
            SEALED: self.sealed,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def composed_with(self, other: PlanEvent) -> PlanEvent:
        """Both on the same records: what reads the same population adds."""
        parts, others = self.events_by_population, other.events_by_population
        both = {name: compose([parts[name], others[name]]) for name in parts if name in others}
        return PlanEvent.from_events_by_population({**parts, **others, **both})

    def is_same_as(self, other: PlanEvent) -> bool:
        """Whether the other plan event is the same mechanisms on the same populations."""
        ours, theirs = self.events_by_population, other.events_by_population
        return ours.keys() == theirs.keys() and all(are_same_events(part, theirs[name]) for name, part in ours.items())

    def to_json(self) -> dict[str, Any]:
        """The forms of the events, by population."""
        return {name: to_json(part) for name, part in self.events_by_population.items()}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> PlanEvent:
        """Reads `to_json`'s form, as `from_events_by_population`."""
        return cls.from_events_by_population({name: from_json(part) for name, part in form.items()})

    @classmethod
    def from_events_by_population(cls, parts: Mapping[str, DpEvent]) -> PlanEvent:
        """The plan event with these populations; raises TypeError for an unknown name or without training records."""
        own = {name: part for name, part in parts.items() if not name.startswith(f"{FINAL} ")}
        final = {name.removeprefix(f"{FINAL} "): part for name, part in parts.items() if name not in own}
        return cls(**own, final=cls.from_events_by_population(final) if final else None)


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
    validation.non_negative("noise_std", noise_std)
    return StatedGaussianDpEvent(noise_multiplier=float(noise_std))


def output_perturbation(*, noise_std: float, sensitivity: float, adjacency: Adjacency) -> DpEvent:
    """Gaussian noise on a finished model, with a sensitivity that was proved for this adjacency.

    *Source*: Chaudhuri, Monteleoni, Sarwate 2011; for strongly convex losses the sensitivity is 2 l / (n lambda) under
    replacement.
    """
    validation.non_negative("noise_std", noise_std)
    validation.positive("sensitivity", sensitivity)
    return StatedGaussianDpEvent(noise_multiplier=noise_std / sensitivity, adjacency=Adjacency(adjacency))


def noisy_table(*, noise_std: float, adjacency: Adjacency) -> DpEvent:
    """A table of counts, each with Gaussian noise of this standard deviation; a record adds numbers >= 0 of norm <= 1.

    *Guarantee*: the L2 sensitivity is 1 where a record is added or removed, and the square root of 2 where one is
    replaced. *Proof*: a record adds a vector v of numbers >= 0 with |v| <= 1, as numbers that sum to 1 have it. Another
    record in its place changes the table by v - w, and |v - w|^2 = |v|^2 + |w|^2 - 2 v.w <= 2, since v.w >= 0. Both are
    attained by records in a single cell each. A quotient is rounded so that the noise never counts for more than it is.
    """
    if Adjacency(adjacency) is Adjacency.REPLACE_ONE:
        validation.non_negative("noise_std", noise_std)
        multiplier = math.nextafter(noise_std / math.sqrt(2), 0.0)
        return StatedGaussianDpEvent(noise_multiplier=multiplier, adjacency=Adjacency.REPLACE_ONE)
    return gaussian(noise_multiplier=noise_std)


def noise_std_of_noisy_table(event: DpEvent) -> float | None:
    """The standard deviation of the noise on each count of a noisy table, to 12 digits; None for other events."""
    step = rate_and_noise_of_gaussian_step_or_none(event)
    stated = noise_multiplier_of_perturbed_output(event)
    std = math.sqrt(2) * stated if stated is not None else None if step is None else step[1]
    return None if std is None else float(f"{std:.12g}")


def noisy_max(*, noise_scale: float) -> DpEvent:
    """The index of the largest of several counts with Gumbel noise of this scale; the counts are not released."""
    return NoisyMaxDpEvent(noise_scale=float(noise_scale))


def poisson_gaussian(*, sample_rate: float, noise_multiplier: float) -> DpEvent:
    """One step of DP-SGD: every record takes part independently with probability `sample_rate`."""
    validation.share("sample_rate", sample_rate)
    return PoissonSampledDpEvent(
        sampling_probability=float(sample_rate), event=gaussian(noise_multiplier=noise_multiplier)
    )


def truncated_poisson_gaussian(
    *, records: int, sample_rate: float, largest_batch: int, noise_multiplier: float
) -> DpEvent:
    """A Poisson-sampled step that uses a uniform subset of `largest_batch` records if more were drawn.

    *Guarantee*: prices hold for data sets of at most `records` records; more records would be cut more often. So
    `records` is a bound that is declared and enforced, and not the nominal number that other samplers divide by.
    """
    return TruncatedSubsampledGaussianDpEvent(
        dataset_size=records,
        sampling_probability=float(sample_rate),
        truncated_batch_size=largest_batch,
        noise_multiplier=float(noise_multiplier),
    )


def without_replacement_gaussian(*, records: int, batch_size: int, noise_multiplier: float) -> DpEvent:
    """A step on exactly `batch_size` of `records` records, drawn uniformly without replacement."""
    if batch_size > records:
        raise ValueError(f"Expected batch_size={batch_size} <= records={records}.")
    return SampledWithoutReplacementDpEvent(
        source_dataset_size=records, sample_size=batch_size, event=gaussian(noise_multiplier=noise_multiplier)
    )


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


def step_on_shared_subsample(*, sample_rate: float, noise_multipliers: Sequence[float]) -> DpEvent:
    """One step of several trials on the *same* Poisson subsample, each with its own noise.

    Together they are one Gaussian mechanism with noise multiplier 1 / sqrt(sum 1 / noise^2): far more expensive than
    trials with independent subsamples.
    """
    for noise in noise_multipliers:
        validation.non_negative("noise_multiplier", noise)
    if not noise_multipliers:
        return no_access()
    precision = sum(math.inf if noise == 0 else noise**-2 for noise in noise_multipliers)
    return poisson_gaussian(sample_rate=sample_rate, noise_multiplier=precision**-0.5)


def adadp(*, sample_rate: float, noise_multiplier: float, iterations: int) -> DpEvent:
    """ADADP: each iteration computes two noisy gradients, at the start and after a half step.

    *Source*: Koskela and Honkela 2020 (Learning Rate Adaptation for Differentially Private Learning), Algorithm 1.
    """
    return repeat(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier), 2 * iterations)


def poisson_sampled(event: DpEvent, *, sample_rate: float) -> DpEvent:
    """Any mechanism on a secret Poisson sample that contains each record with probability `sample_rate`."""
    validation.share("sample_rate", sample_rate)
    return PoissonSampledDpEvent(sampling_probability=float(sample_rate), event=canonical_event(event))


def worst_of_events(events: Iterable[DpEvent]) -> DpEvent:
    """One of these, chosen independently of the data: the event itself if all are equal, else their pointwise worst."""
    distinct = [event for event, _ in _distinct_events(events)]
    if len(distinct) <= 1:
        return distinct[0] if distinct else no_access()
    return WorstDpEvent(events=tuple(distinct))


def worst_plan_event_per_population(points: Sequence[PlanEvent]) -> PlanEvent:
    """An event that costs at least as much as each of these, for every population that one of them has."""
    parts: dict[str, list[DpEvent]] = {}
    for point in points:
        for name, part in point.events_by_population.items():
            parts.setdefault(name, []).append(part)
    return PlanEvent.from_events_by_population({name: worst_of_events(every) for name, every in parts.items()})


def mixture(events: Iterable[DpEvent]) -> DpEvent:
    """One of these, drawn uniformly and independently of the data, with the draw in the output.

    >>> from dpsweep.accounting import Adjacency, Pld
    >>> one, other = gaussian(noise_multiplier=2.0), gaussian(noise_multiplier=20.0)
    >>> [round(Pld().epsilon(event, 1e-5, Adjacency.ADD_OR_REMOVE_ONE), 3) for event in (mixture([one, other]), one)]
    [1.908, 1.993]
    """
    distinct = _distinct_events(events)
    if len(distinct) <= 1:
        return distinct[0][0] if distinct else no_access()
    kinds, counts = zip(*distinct, strict=True)
    shared = math.gcd(*counts)
    return MixtureDpEvent(events=kinds, counts=tuple(count // shared for count in counts))


def _distinct_events(events: Iterable[DpEvent]) -> Leaves:
    """The mechanisms that differ, each in its canonical form, with their numbers."""
    return merge_equal_events((canonical_event(event), count) for event, count in count_equal_objects(list(events)))


def best_of_tries(
    event: DpEvent, tries: NegativeBinomial | Poisson | EachPoint, limit: int | None = None
) -> SelectionDpEvent:
    """The best of this number of independent runs of `event`; `limit` ends the search early."""
    return SelectionDpEvent(event=canonical_event(event), tries=tries, limit=limit)


def random_stopping(event: DpEvent, *, gamma: float, delta2: float) -> RandomStoppingDpEvent:
    """Liu and Talwar's random stopping: each try stops with probability gamma; at most ln(1/delta2)/gamma tries."""
    validation.require_number_between("delta2", delta2, above=0, below=1)
    validation.share("gamma", gamma)
    limit = math.ceil(math.log(1 / delta2) / gamma)
    return RandomStoppingDpEvent(
        event=canonical_event(event), tries=Stopping(gamma=float(gamma), limit=limit), delta2=delta2
    )


def above_threshold(event: DpEvent, *, gamma: float, limit: int) -> ThresholdDpEvent:
    """Tries until one reaches a public threshold, a random stop of probability gamma occurs, or `limit` is reached."""
    return ThresholdDpEvent(event=canonical_event(event), tries=Stopping(gamma=float(gamma), limit=limit))


EPOCHS = (EpochDpEvent, RandomAllocationDpEvent)
"""Events of several steps at once."""


def rate_and_noise_of_gaussian_step_or_none(
    event: DpEvent, adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE
) -> tuple[float, float] | None:
    """(sample_rate, noise_multiplier) of a Gaussian mechanism, Poisson-sampled or with rate 1; else None.

    The noise multiplier is relative to the norm bound of one record, for every `adjacency`. If replacement is known to
    change the sum by no more than this bound, the noise multiplier counts twice. A non-private access is (1.0, 0.0).
    """
    if type(event) is NonPrivateDpEvent:
        return 1.0, 0.0
    if isinstance(event, (GaussianDpEvent, EpochDpEvent)):
        return getattr(event, "sampling_probability", 1.0), float(event.noise_multiplier)
    if type(event) is StatedGaussianDpEvent and event.adjacency in (None, adjacency):
        return 1.0, event.noise_multiplier * (2 if adjacency is Adjacency.REPLACE_ONE else 1)
    if type(event) is PoissonSampledDpEvent and type(event.event) is GaussianDpEvent:
        return float(event.sampling_probability), float(event.event.noise_multiplier)
    return None


def steps_and_noise_of_epoch(event: DpEvent) -> tuple[int, float] | None:
    """(steps, noise_multiplier) of an epoch in which every record takes part once; else None."""
    return (event.steps, event.noise_multiplier) if isinstance(event, EPOCHS) else None


def is_random_allocation(event: DpEvent) -> bool:
    """Whether the event is an epoch in which every record takes part in a secret, random step."""
    return isinstance(event, RandomAllocationDpEvent)


def noise_multiplier_of_perturbed_output(event: DpEvent) -> float | None:
    """The noise multiplier of noise on a finished model, whose sensitivity was proved for one adjacency; else None."""
    return event.noise_multiplier if isinstance(event, StatedGaussianDpEvent) and event.adjacency is not None else None


def size_records_and_noise_of_fixed_step(event: DpEvent) -> tuple[int, int, float] | None:
    """(batch_size, records, noise_multiplier) of a Gaussian step on a batch without replacement; else None."""
    if type(event) is SampledWithoutReplacementDpEvent and type(event.event) is GaussianDpEvent:
        return int(event.sample_size), int(event.source_dataset_size), float(event.event.noise_multiplier)
    return None


def repeat(event: DpEvent, count: int) -> DpEvent:
    """The same mechanism `count` times, each with fresh randomness."""
    return SelfComposedDpEvent(event=event, count=count)


def compose(events: Iterable[DpEvent]) -> DpEvent:
    """All of these mechanisms on the same records; equal leaves are merged, and leaves are in a canonical order.

    >>> from dpsweep.accounting import poisson_gaussian
    >>> step = poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0)
    >>> are_same_events(compose([repeat(step, 2), step]), repeat(step, 3))
    True
    """
    leaves = ComposedDpEvent(tuple(events)).leaves
    return ComposedDpEvent(events=tuple(repeat(leaf, count) for leaf, count in leaves))


def leaves_with_counts(event: DpEvent) -> Leaves:
    """`DpEvent.leaves`; an event of another library is a leaf, which accountants refuse by its name."""
    return event.leaves if isinstance(event, DpEvent) else ((event, 1),)


def are_same_events(left: DpEvent, right: DpEvent) -> bool:
    """Whether two events are the same mechanisms with the same counts, for every nesting and order."""
    return leaves_with_counts(left) == leaves_with_counts(right)


def number_of_steps(event: DpEvent) -> int:
    """The number of steps in a run of this event: one per mechanism; an epoch counts all of its steps."""
    return sum(count * steps_of_leaf(leaf) for leaf, count in leaves_with_counts(event))


def steps_of_leaf(leaf: DpEvent) -> int:
    """The number of steps in a leaf; none in what stands beside a mechanism."""
    return leaf.steps if isinstance(leaf, EPOCHS) else int(not isinstance(leaf, RoundedNumberDpEvent))


def canonical_event(event: DpEvent) -> DpEvent:
    """The canonical form of one mechanism: a single leaf as itself, anything else as a sorted composition."""
    whole = compose([event])
    return whole.leaves[0][0] if [count for _, count in whole.leaves] == [1] else whole
