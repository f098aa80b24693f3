"""Rounded noisy numbers in events: leaves of their own, beside the mechanisms of their run.

So repetition and composition count them, a search has those of one try inside, and a run with more numbers than were
declared has an event that was not charged. `accounting/rounded_noise_price.py` says what they cost.
"""

from __future__ import annotations

from dpsweep.accounting.events.build import (
    DpEvent,
    compose,
    leaves_with_counts,
    number_of_steps,
    repeat,
)
from dpsweep.accounting.events.types import Leaves, NonPrivateDpEvent, RoundedNumberDpEvent
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
