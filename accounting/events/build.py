"""What touched the data, as frozen values of the field's vocabulary (`dp_accounting.dp_event`).

An event is declared before anything runs; accountants price it; the run is compared with it afterwards. This is the
only module that constructs the library's classes, so that one place decides what noise multipliers mean:

* `noise_multiplier` is the standard deviation of the noise on the *sum*, divided by the per-record norm bound (the
  clip norm, or 1 for normalisation), whatever the adjacency. Replacing a record moves the sum by up to twice the
  bound; accountants, not events, know that.
* Composition is flattened here, once: `flatten` turns nested repetition into (leaf, count) pairs with equal leaves
  merged, so that n-fold repetition never depends on an accountant remembering it.
* What stands inside a sampled event or a search is put into one canonical form when it is built.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dpsweep.accounting import numbers
from dpsweep.accounting.events.match import as_epoch, as_fixed_size_step, as_gaussian_step, is_output_perturbation
from dpsweep.accounting.events.serialize import canonical, from_json, to_json
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson, Stopping
from dpsweep.accounting.events.types import (
    BlackBoxDpEvent,
    ComposedDpEvent,
    DpEvent,
    EpochDpEvent,
    GaussianDpEvent,
    NoisyMaxDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RandomStoppingDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    SelfComposedDpEvent,
    StatedGaussianDpEvent,
    ThresholdDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    WorstDpEvent,
)
from dpsweep.accounting.guarantee import Adjacency

__all__ = [
    "DpEvent",
    "PlanEvent",
    "above_threshold",
    "adadp",
    "as_epoch",
    "as_fixed_size_step",
    "as_gaussian_step",
    "black_box",
    "compose",
    "flatten",
    "from_json",
    "gaussian",
    "is_output_perturbation",
    "noisy_count",
    "noisy_max",
    "non_private",
    "nothing",
    "output_perturbation",
    "poisson_gaussian",
    "random_stopping",
    "repeat",
    "same",
    "sampled_part",
    "select",
    "share",
    "shared_subsample",
    "shuffled_gaussian",
    "steps_of",
    "to_json",
    "truncated_poisson_gaussian",
    "without_replacement_gaussian",
    "worst",
]


@dataclass(frozen=True, kw_only=True)
class PlanEvent:
    """A plan's two disjoint populations: the training records, and the held-out records that scores are read from.

    *Guarantee*: while one publicly fixed split holds, every record lies in one part, so the whole costs the
    pointwise maximum of the two parts, not their sum (parallel composition). `validation` is None where no private
    record is scored.
    """

    training: DpEvent
    validation: DpEvent | None = None

    @property
    def parts(self) -> dict[str, DpEvent]:
        """The populations by name."""
        parts = {"training": self.training}
        return parts if self.validation is None else {**parts, "validation": self.validation}


def nothing() -> DpEvent:
    """No access at all."""
    return NoOpDpEvent()


def non_private() -> DpEvent:
    """An access that protects nobody: every accountant answers infinity."""
    return NonPrivateDpEvent()


def black_box(*, epsilon: float, delta: float, adjacency: Adjacency) -> DpEvent:
    """A mechanism known only by its claim, which holds for neighbours of this kind and no other."""
    _require(not math.isnan(epsilon) and epsilon >= 0, "epsilon", epsilon, ">= 0")
    _require(0 <= delta < 1, "delta", delta, "in [0, 1)")
    return BlackBoxDpEvent(epsilon=float(epsilon), delta=float(delta), adjacency=Adjacency(adjacency))


def gaussian(*, noise_multiplier: float) -> DpEvent:
    """A Gaussian mechanism on a sum to which each record adds a vector of norm at most 1."""
    _require_noise(noise_multiplier)
    return GaussianDpEvent(noise_multiplier=float(noise_multiplier))


def noisy_count(*, noise_std: float) -> DpEvent:
    """One count with Gaussian noise: its sensitivity is 1 whichever neighbours are meant."""
    _require_noise(noise_std, "noise_std")
    return StatedGaussianDpEvent(noise_multiplier=float(noise_std))


def output_perturbation(*, noise_std: float, sensitivity: float, adjacency: Adjacency) -> DpEvent:
    """Gaussian noise on a finished model whose sensitivity was proved for neighbours of this kind.

    *Source*: Chaudhuri, Monteleoni, Sarwate 2011; for strongly convex losses the sensitivity is 2 l / (n lambda) under
    replacement.
    """
    _require_noise(noise_std, "noise_std")
    _require(math.isfinite(sensitivity) and sensitivity > 0, "sensitivity", sensitivity, "> 0 and finite")
    return StatedGaussianDpEvent(noise_multiplier=noise_std / sensitivity, adjacency=Adjacency(adjacency))


def noisy_max(*, noise_scale: float) -> DpEvent:
    """The index of the largest of any number of counts with Gumbel noise of this scale; none of the counts is seen."""
    _require_noise(noise_scale, "noise_scale")
    return NoisyMaxDpEvent(noise_scale=float(noise_scale))


def poisson_gaussian(*, sample_rate: float, noise_multiplier: float) -> DpEvent:
    """One step of DP-SGD: every record takes part independently with probability `sample_rate`."""
    numbers.share("sample_rate", sample_rate)
    return PoissonSampledDpEvent(
        sampling_probability=float(sample_rate), event=gaussian(noise_multiplier=noise_multiplier)
    )


def truncated_poisson_gaussian(
    *, records: int, sample_rate: float, largest_batch: int, noise_multiplier: float
) -> DpEvent:
    """A Poisson-sampled step that takes a uniform subset of `largest_batch` records where more were drawn."""
    numbers.positive_int("records", records)
    numbers.positive_int("largest_batch", largest_batch)
    numbers.share("sample_rate", sample_rate)
    _require_noise(noise_multiplier)
    return TruncatedSubsampledGaussianDpEvent(
        dataset_size=records,
        sampling_probability=float(sample_rate),
        truncated_batch_size=largest_batch,
        noise_multiplier=float(noise_multiplier),
    )


def without_replacement_gaussian(*, records: int, batch_size: int, noise_multiplier: float) -> DpEvent:
    """A step on exactly `batch_size` of `records` records, drawn uniformly without replacement."""
    numbers.positive_int("records", records)
    numbers.positive_int("batch_size", batch_size)
    _require(batch_size <= records, "batch_size", batch_size, f"<= records={records}")
    return SampledWithoutReplacementDpEvent(
        source_dataset_size=records, sample_size=batch_size, event=gaussian(noise_multiplier=noise_multiplier)
    )


def shuffled_gaussian(*, epochs: int, steps: int, noise_multiplier: float) -> DpEvent:
    """Epochs of so many steps in which every record takes part exactly once, in whatever order: nothing is amplified.

    *Source*: whichever step of an epoch has a record, the others' outputs do not depend on it but through what that one
    put out (adaptive parallel composition; McSherry 2009, Theorem 4), so an epoch is one Gaussian mechanism.
    """
    numbers.positive_int("steps", steps)
    _require_noise(noise_multiplier)
    return repeat(EpochDpEvent(steps=steps, noise_multiplier=float(noise_multiplier)), epochs)


def shared_subsample(*, sample_rate: float, noise_multipliers: Sequence[float]) -> DpEvent:
    """One step of several trials on the *same* Poisson subsample, each with noise of its own.

    Together they are one Gaussian mechanism of noise 1 / sqrt(sum 1 / noise^2): far dearer than trials that sample each
    for itself.
    """
    for noise in noise_multipliers:
        _require_noise(noise)
    if not noise_multipliers:
        return nothing()
    precision = sum(math.inf if noise == 0 else noise**-2 for noise in noise_multipliers)
    return poisson_gaussian(sample_rate=sample_rate, noise_multiplier=precision**-0.5)


def share(runs: Iterable[DpEvent]) -> DpEvent:
    """Runs of Poisson-sampled Gaussian steps that have the *same* batches, step by step, each as long as it lasts.

    *Source*: the runs' sums side by side are one sum, each part scaled by its noise; so every step is
    `shared_subsample` of the runs that are not over yet. Raises ValueError for runs of other steps.
    """
    taken: list[tuple[int, float, float]] = []
    for run in runs:
        leaves = flatten(run)
        step = as_gaussian_step(leaves[0][0]) if len(leaves) == 1 else None
        if step is None or not isinstance(leaves[0][0], PoissonSampledDpEvent):
            raise ValueError(f"Expected run={run} to repeat one Poisson-sampled Gaussian step.")
        taken.append((leaves[0][1], *step))
    if len(rates := {rate for _, rate, _ in taken}) > 1:
        raise ValueError(f"Expected sample_rate={sorted(rates)} of runs that share their batches to be one.")
    parts, before = [], 0
    for steps in sorted({steps for steps, _, _ in taken}):
        noises = [noise for lasts, _, noise in taken if lasts >= steps]
        parts.append(repeat(shared_subsample(sample_rate=min(rates), noise_multipliers=noises), steps - before))
        before = steps
    return compose(parts)


def adadp(*, sample_rate: float, noise_multiplier: float, iterations: int) -> DpEvent:
    """ADADP: each iteration asks for two noisy gradients, at the start and after a half step.

    *Source*: Koskela and Honkela 2020 (Learning Rate Adaptation for Differentially Private Learning), Algorithm 1.
    """
    return repeat(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier), _even(iterations))


def sampled_part(event: DpEvent, *, sample_rate: float) -> DpEvent:
    """Any mechanism on a secret part of the data that each record joins with probability `sample_rate`."""
    numbers.share("sample_rate", sample_rate)
    return PoissonSampledDpEvent(sampling_probability=float(sample_rate), event=_one(event))


def worst(events: Iterable[DpEvent]) -> DpEvent:
    """One of these, chosen without looking at the data: itself if they are all the same, else their pointwise worst."""
    distinct = {canonical(one): one for one in map(_one, events)}
    if len(distinct) <= 1:
        return next(iter(distinct.values()), nothing())
    return WorstDpEvent(events=tuple(distinct[key] for key in sorted(distinct)))


def select(event: DpEvent, tries: NegativeBinomial | Poisson, limit: int | None = None) -> DpEvent:
    """The best of a secret number of independent runs of `event`; `limit` ends the search early."""
    if limit is not None:
        numbers.positive_int("limit", limit)
    return SelectionDpEvent(event=_one(event), tries=tries, limit=limit)


def random_stopping(event: DpEvent, *, gamma: float, delta2: float) -> DpEvent:
    """Liu and Talwar's random stopping: a coin of probability gamma after each try, and at most ln(1/delta2)/gamma."""
    numbers.between("delta2", delta2, above=0, below=1)
    numbers.share("gamma", gamma)
    limit = math.ceil(math.log(1 / delta2) / gamma)
    return RandomStoppingDpEvent(event=_one(event), tries=Stopping(gamma=float(gamma), limit=limit), delta2=delta2)


def above_threshold(event: DpEvent, *, gamma: float, limit: int) -> DpEvent:
    """Tries until one reaches a public threshold, a coin of probability gamma says stop, or `limit` were made."""
    return ThresholdDpEvent(event=_one(event), tries=Stopping(gamma=float(gamma), limit=limit))


def repeat(event: DpEvent, count: int) -> DpEvent:
    """The same mechanism `count` times, each with fresh randomness."""
    numbers.integer("count", count)
    _require(count >= 0, "count", count, ">= 0")
    return SelfComposedDpEvent(event=event, count=count)


def compose(events: Iterable[DpEvent]) -> DpEvent:
    """All of these mechanisms on the same records, equal leaves merged and in an order that does not depend on theirs.

    >>> step = poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0)
    >>> same(compose([repeat(step, 2), step]), repeat(step, 3))
    True
    """
    return ComposedDpEvent(events=[repeat(leaf, count) for leaf, count in _unrolled(ComposedDpEvent(list(events)))])


def flatten(event: DpEvent) -> tuple[tuple[DpEvent, int], ...]:
    """The leaves of a composition with their multiplicities: the one place that unrolls repetition.

    Leaves are everything but composition; a sampled event is one leaf. Leaves that occur zero times vanish, and no-ops.
    """
    return _flattened(_Itself(event))


@dataclass(frozen=True, eq=False)
class _Itself:
    """An event by its identity: those that hold lists have no hash, and long ones take long to compare."""

    event: DpEvent

    def __hash__(self) -> int:
        return id(self.event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.event is other.event


@lru_cache(maxsize=64)
def _flattened(itself: _Itself) -> tuple[tuple[DpEvent, int], ...]:
    return _unrolled(itself.event)


def _unrolled(event: DpEvent) -> tuple[tuple[DpEvent, int], ...]:
    counts: dict[object, list[int]] = {}
    leaves: list[DpEvent] = []

    def visit(node: DpEvent, times: int) -> None:
        if isinstance(node, SelfComposedDpEvent):
            visit(node.event, times * node.count)
        elif isinstance(node, ComposedDpEvent):
            for inner in node.events:
                visit(inner, times)
        elif times > 0 and not isinstance(node, NoOpDpEvent):
            met = counts.setdefault(_key(node), [])
            if not met:
                leaves.append(node)
            met.append(times)

    visit(event, 1)
    found = zip(leaves, map(sum, counts.values()), strict=True)
    return tuple(sorted(found, key=lambda leaf: canonical(leaf[0])))


def same(left: DpEvent, right: DpEvent) -> bool:
    """Whether two events are the same mechanisms the same number of times, however nested or ordered."""
    return flatten(left) == flatten(right)


def steps_of(event: DpEvent) -> int:
    """How many steps a run of this event has: one a leaf, and an epoch's where that is the leaf."""
    return sum(count * (leaf.steps if type(leaf) is EpochDpEvent else 1) for leaf, count in flatten(event))


def _one(event: DpEvent) -> DpEvent:
    """The canonical form of one mechanism: a lone leaf as itself, anything else as a sorted composition."""
    leaves = flatten(event)
    return leaves[0][0] if len(leaves) == 1 and leaves[0][1] == 1 else compose([event])


def _even(iterations: int) -> int:
    numbers.integer("iterations", iterations)
    return 2 * iterations


def _key(event: DpEvent) -> object:
    """Equal for equal leaves; the library's events that hold lists are not hashable."""
    try:
        hash(event)
    except TypeError:
        return repr(event)
    return event


def _require(holds: bool, name: str, value: object, condition: str) -> None:
    if not holds:
        raise ValueError(f"Expected {name}={value} {condition}.")


def _require_noise(value: float, name: str = "noise_multiplier") -> None:
    _require(math.isfinite(value) and value >= 0, name, value, ">= 0")
