"""Rounded noisy numbers and placed batches in events: leaves of their own, beside the mechanisms of their run.

So repetition and composition count them, a search has those of one try inside, and a run with more numbers than were
declared has an event that was not charged. `accounting/rounded_noise_price.py` says what they cost.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dpsweep.accounting.events.build import (
    BESIDE,
    EPOCHS,
    DpEvent,
    Leaves,
    canonical_event,
    compose,
    leaves_with_counts,
    number_of_steps,
    repeat,
    steps_of_leaf,
)
from dpsweep.accounting.events.types import (
    MixtureDpEvent,
    NonPrivateDpEvent,
    PlacedBatchDpEvent,
    PoissonSampledDpEvent,
    Recent,
    RoundedNumberDpEvent,
    WorstDpEvent,
)
from dpsweep.accounting.rounded_noise_price import NUMBERS_OF_COUNT


def mechanisms_with_counts(event: DpEvent) -> Leaves:
    """The leaves with their multiplicities, without rounded numbers and placed batches."""
    leaves = leaves_with_counts(event)
    known = _MECHANISMS.find_kept_value(leaves)
    if known is not None:
        return known
    every = tuple(pair for pair in leaves if not isinstance(pair[0], BESIDE))
    return _MECHANISMS.keep_value(leaves, leaves if len(every) == len(leaves) else every)


_MECHANISMS: Recent[Leaves] = Recent(most=256)


def number_of_rounded_numbers(event: DpEvent) -> int:
    """The rounded numbers beside the mechanisms of a composition, without those inside of its searches."""
    return sum(count for leaf, count in leaves_with_counts(event) if isinstance(leaf, RoundedNumberDpEvent))


def with_rounded_noise(run: DpEvent, numbers: int) -> DpEvent:
    """The run with rounded noise on so many numbers in each step, and places for the units that a step samples.

    The run itself where nothing protects the records.
    """
    leaves = leaves_with_counts(run)
    if any(isinstance(leaf, NonPrivateDpEvent) for leaf, _ in leaves):
        return run
    sampled = sum(count * steps_of_leaf(leaf) for leaf, count in leaves if _is_batch_size_random(leaf))
    beside = (RoundedNumberDpEvent(), numbers * number_of_steps(run)), (PlacedBatchDpEvent(), sampled)
    return compose([run, *(repeat(event, count) for event, count in beside if count)])


def with_rounded_counts(event: DpEvent, counts: int) -> DpEvent:
    """A table of so many counts, with the rounding of their noise."""
    return with_rounded_noise(event, NUMBERS_OF_COUNT * counts)


def _is_batch_size_random(leaf: DpEvent) -> bool:
    if isinstance(leaf, PoissonSampledDpEvent):
        return leaf.sampling_probability < 1
    return isinstance(leaf, EPOCHS) and leaf.steps > 1


def split_off_batches(event: DpEvent) -> tuple[DpEvent, float]:
    """The event without its placed batches, and the expected number of these, by the laws of the tries of searches.

    These laws are independent of the data. Where one of several mechanisms runs, it is the largest number, or their
    mean if it is drawn; a limit of the tries is left out, which only makes the number larger.
    """
    known = _WITHOUT_BATCHES.find_kept_value(event)
    return _WITHOUT_BATCHES.keep_value(event, _split_off_batches(event)) if known is None else known


_WITHOUT_BATCHES: Recent[tuple[DpEvent, float]] = Recent(most=256)


def _split_off_batches(event: DpEvent) -> tuple[DpEvent, float]:
    parts, total = [], 0.0
    for leaf, count in leaves_with_counts(event):
        if isinstance(leaf, PlacedBatchDpEvent):
            total += count
            continue
        part, batches = _split_off_batches_inside_leaf(leaf)
        parts.append(repeat(part, count))
        total += count * batches
    return (compose(parts), total) if total else (event, 0.0)


def _split_off_batches_inside_leaf(leaf: Any) -> tuple[DpEvent, float]:
    if isinstance(leaf, (WorstDpEvent, MixtureDpEvent)):
        inner, numbers = zip(*map(split_off_batches, leaf.events), strict=True)
        most = (
            max(numbers)
            if isinstance(leaf, WorstDpEvent)
            else sum(map(math.prod, zip(leaf.weights, numbers, strict=True)))
        )
        return (replace(leaf, events=tuple(map(canonical_event, inner))), most) if most else (leaf, 0.0)
    if isinstance(getattr(leaf, "event", None), DpEvent):
        inner_event, batches = split_off_batches(leaf.event)
        tries = leaf.tries.mean if hasattr(leaf, "tries") else 1.0
        return (replace(leaf, event=canonical_event(inner_event)), tries * batches) if batches else (leaf, 0.0)
    return leaf, 0.0
