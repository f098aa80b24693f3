"""Composition of events: nested repetition is flattened into (leaf, count) pairs with equal leaves merged."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from dpsweep.accounting import numbers
from dpsweep.accounting.by_identity import ByIdentity
from dpsweep.accounting.events.match import EPOCHS
from dpsweep.accounting.events.serialize import canonical, hashable
from dpsweep.accounting.events.types import (
    ComposedDpEvent,
    DpEvent,
    NoOpDpEvent,
    SelfComposedDpEvent,
)


def repeat(event: DpEvent, count: int) -> DpEvent:
    """The same mechanism `count` times, each with fresh randomness."""
    numbers.integer("count", count)
    if count < 0:
        raise ValueError(f"Expected count={count} >= 0.")
    return SelfComposedDpEvent(event=event, count=count)


def compose(events: Iterable[DpEvent]) -> DpEvent:
    """All of these mechanisms on the same records; equal leaves are merged, and leaves are in a canonical order.

    >>> from dpsweep.accounting import poisson_gaussian
    >>> step = poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0)
    >>> same(compose([repeat(step, 2), step]), repeat(step, 3))
    True
    """
    return ComposedDpEvent(events=[repeat(leaf, count) for leaf, count in _unrolled(ComposedDpEvent(list(events)))])


def flatten(event: DpEvent) -> tuple[tuple[DpEvent, int], ...]:
    """The leaves of a composition with their multiplicities: the one place that unrolls repetition.

    Leaves are all events except compositions; a sampled event is one leaf. Leaves with count zero and no-ops vanish.
    """
    return _flattened(ByIdentity(event))


@lru_cache(maxsize=64)
def _flattened(key: ByIdentity[DpEvent]) -> tuple[tuple[DpEvent, int], ...]:
    return _unrolled(key.value)


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
            leaf_counts = counts.setdefault(_key(node), [])
            if not leaf_counts:
                leaves.append(node)
            leaf_counts.append(times)

    visit(event, 1)
    pairs = zip(leaves, map(sum, counts.values()), strict=True)
    return tuple(sorted(pairs, key=lambda pair: canonical(pair[0])))


def same(left: DpEvent, right: DpEvent) -> bool:
    """Whether two events are the same mechanisms with the same counts, for every nesting and order."""
    return flatten(left) == flatten(right)


def steps_of(event: DpEvent) -> int:
    """The number of steps in a run of this event: one per leaf; an epoch counts all of its steps."""
    return sum(count * (leaf.steps if isinstance(leaf, EPOCHS) else 1) for leaf, count in flatten(event))


def one(event: DpEvent) -> DpEvent:
    """The canonical form of one mechanism: a single leaf as itself, anything else as a sorted composition."""
    leaves = flatten(event)
    return leaves[0][0] if len(leaves) == 1 and leaves[0][1] == 1 else compose([event])


def _key(event: DpEvent) -> object:
    """A key that is equal for equal leaves, also for those that are not hashable."""
    return event if hashable(event) else repr(event)
