"""Recognition of single events, and composition: nested repetition is flattened into (leaf, count) pairs.

Single events are Gaussian steps, fixed-size batches, epochs and output perturbation; of leaves, equal ones are merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from dpsweep.accounting.events.types import (
    ComposedDpEvent,
    DpEvent,
    EpochDpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RandomAllocationDpEvent,
    Recent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
    StatedGaussianDpEvent,
    canonical,
    hashable,
)
from dpsweep.accounting.guarantee import Adjacency

EPOCHS = (EpochDpEvent, RandomAllocationDpEvent)
"""Events of several steps at once."""


def as_gaussian_step(event: DpEvent, adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE) -> tuple[float, float] | None:
    """(sample_rate, noise_multiplier) of a Gaussian mechanism, Poisson-sampled or with rate 1; else None.

    The noise multiplier is relative to the norm bound of one record, for every `adjacency`. If replacement is known to
    change the sum by no more than this bound, the noise multiplier counts twice. A non-private access is (1.0, 0.0).
    """
    if type(event) is NonPrivateDpEvent:
        return 1.0, 0.0
    if isinstance(event, (GaussianDpEvent, EpochDpEvent)):
        return 1.0, float(event.noise_multiplier)
    if type(event) is StatedGaussianDpEvent and event.adjacency in (None, adjacency):
        return 1.0, event.noise_multiplier * (2 if adjacency is Adjacency.REPLACE_ONE else 1)
    if type(event) is PoissonSampledDpEvent and type(event.event) is GaussianDpEvent:
        return float(event.sampling_probability), float(event.event.noise_multiplier)
    return None


def as_epoch(event: DpEvent) -> tuple[int, float] | None:
    """(steps, noise_multiplier) of an epoch in which every record takes part once; else None."""
    return (event.steps, event.noise_multiplier) if isinstance(event, EPOCHS) else None


def is_allocation(event: DpEvent) -> bool:
    """Whether the event is an epoch in which every record takes part in a secret, random step."""
    return isinstance(event, RandomAllocationDpEvent)


def output_noise(event: DpEvent) -> float | None:
    """The noise multiplier of noise on a finished model, whose sensitivity was proved for one adjacency; else None."""
    return event.noise_multiplier if isinstance(event, StatedGaussianDpEvent) and event.adjacency is not None else None


def as_fixed_size_step(event: DpEvent) -> tuple[int, int, float] | None:
    """(batch_size, records, noise_multiplier) of a Gaussian step on a batch without replacement; else None."""
    if type(event) is SampledWithoutReplacementDpEvent and type(event.event) is GaussianDpEvent:
        return int(event.sample_size), int(event.source_dataset_size), float(event.event.noise_multiplier)
    return None


Leaves = tuple[tuple[DpEvent, int], ...]
"""The leaves of an event with their multiplicities, in canonical order."""


def repeat(event: DpEvent, count: int) -> DpEvent:
    """The same mechanism `count` times, each with fresh randomness."""
    return SelfComposedDpEvent(event=event, count=count)


def compose(events: Iterable[DpEvent]) -> DpEvent:
    """All of these mechanisms on the same records; equal leaves are merged, and leaves are in a canonical order.

    >>> from dpsweep.accounting import poisson_gaussian
    >>> step = poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0)
    >>> same(compose([repeat(step, 2), step]), repeat(step, 3))
    True
    """
    leaves = _unrolled(ComposedDpEvent(list(events)))
    composed = ComposedDpEvent(events=[repeat(leaf, count) for leaf, count in leaves])
    _UNROLLED.keep(composed, leaves)
    return composed


def flatten(event: DpEvent) -> tuple[tuple[DpEvent, int], ...]:
    """The leaves of a composition with their multiplicities: the one place that unrolls repetition.

    Leaves are all events except compositions; a sampled event is one leaf. Leaves with count zero and no-ops vanish.
    """
    leaves = _UNROLLED.of(event)
    return _UNROLLED.keep(event, _unrolled(event)) if leaves is None else leaves


_UNROLLED: Recent[Leaves] = Recent(most=256)
_ONES: Recent[DpEvent] = Recent(most=256)


def _unrolled(event: DpEvent) -> Leaves:
    parts = list(_parts(event, 1))
    if len(parts) == 1 and (kept := _UNROLLED.of(parts[0][0])) is not None:
        return tuple((leaf, count * parts[0][1]) for leaf, count in kept)
    counts: dict[object, list[int]] = {}
    leaves: list[DpEvent] = []
    for part, times in parts:
        kept = _UNROLLED.of(part)
        for leaf, count in ((part, 1),) if kept is None else kept:
            leaf_counts = counts.setdefault(_key(leaf), [])
            if not leaf_counts:
                leaves.append(leaf)
            leaf_counts.append(count * times)
    pairs = zip(leaves, map(sum, counts.values()), strict=True)
    return tuple(sorted(pairs, key=lambda pair: canonical(pair[0])))


def _parts(event: DpEvent, times: int) -> Iterator[tuple[DpEvent, int]]:
    """The leaves of an event, and its compositions whose leaves are kept; each object once in its composition."""
    if isinstance(event, SelfComposedDpEvent):
        yield from _parts(event.event, times * event.count)
    elif isinstance(event, ComposedDpEvent) and _UNROLLED.of(event) is None:
        for inner, count in by_identity(event.events):
            yield from _parts(inner, times * count)
    elif times > 0 and not isinstance(event, NoOpDpEvent):
        yield event, times


def by_identity(events: Iterable[DpEvent]) -> list[tuple[DpEvent, int]]:
    """The events, each object once with its number, in the order of their first places."""
    every = list(events)
    places = list(map(id, every))
    objects, counts = dict(zip(places, every, strict=True)), Counter(places)
    return [(event, counts[place]) for place, event in objects.items()]


def same(left: DpEvent, right: DpEvent) -> bool:
    """Whether two events are the same mechanisms with the same counts, for every nesting and order."""
    return flatten(left) == flatten(right)


def steps_of(event: DpEvent) -> int:
    """The number of steps in a run of this event: one per leaf; an epoch counts all of its steps."""
    return sum(count * (leaf.steps if isinstance(leaf, EPOCHS) else 1) for leaf, count in flatten(event))


def one(event: DpEvent) -> DpEvent:
    """The canonical form of one mechanism: a single leaf as itself, anything else as a sorted composition."""
    known = _ONES.of(event)
    if known is not None:
        return known
    leaves = flatten(event)
    return _ONES.keep(event, leaves[0][0] if len(leaves) == 1 and leaves[0][1] == 1 else compose([event]))


def _key(event: DpEvent) -> object:
    """A key that is equal for equal leaves, also for those that are not hashable."""
    return event if hashable(event) else repr(event)
