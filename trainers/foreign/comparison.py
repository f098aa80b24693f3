"""The comparison of the event that a script's accountant reports with the one that was declared and charged."""

from __future__ import annotations

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import (
    DpEvent,
    as_fixed_size_step,
    as_gaussian_step,
    flatten,
    non_private,
    same,
    steps_of,
)
from dpsweep.accounting.events.types import word


def check_reported(reported: DpEvent, declared: DpEvent, *, steps: int, taken: object = None) -> None:
    """Raises `ContractBroken` unless `reported` has `steps` steps, each costing at most a step of `declared`.

    `taken` is the number of steps that the script took from `each_step`, None if it took none from there.
    A step costs no more if its noise multiplier is at least the declared one and its sampling rate at most.
    *Source*: both only make a subsampled Gaussian mechanism more private, under either adjacency.
    """
    ran = steps_of(reported)
    if ran != steps:
        raise ContractBroken(f"The script differs from its charge: it reports {ran} steps, and {steps} were declared.")
    if taken not in (None, steps):
        raise ContractBroken(f"The script differs from its charge: it took {taken} of {steps} steps from each_step.")
    for one, _ in flatten(reported):
        if not any(_costs_no_more(one, other) for other, _ in flatten(declared)):
            raise ContractBroken(
                f"The script differs from its charge: it reports steps of {_in_words(one)}, and "
                f"{', '.join(_in_words(other) for other, _ in flatten(declared))} was declared."
            )


def _costs_no_more(one: DpEvent, declared: DpEvent) -> bool:
    if same(declared, non_private()):
        return True
    fixed, other = as_fixed_size_step(one), as_fixed_size_step(declared)
    if fixed is not None and other is not None:
        return 0 <= fixed[0] * other[1] <= other[0] * fixed[1] and fixed[2] >= other[2]
    step, limit = as_gaussian_step(one), as_gaussian_step(declared)
    return step is not None and limit is not None and 0 <= step[0] <= limit[0] and step[1] >= limit[1]


def _in_words(event: DpEvent) -> str:
    """A step for a message, with its exact numbers: the curator compares them with those of the script."""
    if (fixed := as_fixed_size_step(event)) is not None:
        return f"batch size {fixed[0]} of {fixed[1]} records and noise multiplier {fixed[2]!r}"
    if (step := as_gaussian_step(event)) is not None:
        return f"sampling rate {step[0]!r} and noise multiplier {step[1]!r}"
    return word(event)
