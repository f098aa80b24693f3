"""The event that a script reports, read from other libraries' accountants and compared with the declared one.

An Opacus accountant records the noise multiplier, sampling rate and number of its steps. A Hugging Face trainer's state
beside it is a second count of the same steps, and both must agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpsweep.accounting.errors import ContractBroken, UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    are_same_events,
    as_fixed_batch_step,
    as_gaussian_step,
    compose,
    leaves_with_counts,
    non_private,
    number_of_steps,
    poisson_gaussian,
    repeat,
)
from dpsweep.accounting.events.dp_accounting_events import from_dp_accounting
from dpsweep.accounting.events.types import event_name


def _is_opacus_accountant_or_engine(value: Any) -> bool:
    """Whether this is an accountant of Opacus or its privacy engine, by what they have."""
    return isinstance(getattr(_accountant_or_itself(value), "history", None), list)


def event_from_opacus_history(value: Any) -> DpEvent:
    """The event of `accountant.history`, which lists (noise multiplier, sampling rate, steps); also of an engine's.

    Opacus appends to it at every step of its optimizer, so the number of steps is that of the optimizer.
    Raises `ContractBroken` if the history is none of these numbers.
    """
    history = _accountant_or_itself(value).history
    try:
        entries = [(float(noise), float(rate), int(steps)) for noise, rate, steps in history]
        return compose(
            repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps) for noise, rate, steps in entries
        )
    except (TypeError, ValueError) as cause:
        raise ContractBroken(f"Expected history={history!r} to be one of Opacus: {cause}") from cause


def _accountant_or_itself(value: Any) -> Any:
    return getattr(value, "accountant", value)


@dataclass(frozen=True, kw_only=True)
class TrainerState:
    """A trainer with a `state.global_step`, and the accountant of Opacus that watched its optimizer."""

    trainer: Any
    accountant: Any


def event_from_trainer_accountant(value: TrainerState) -> DpEvent:
    """The accountant's event; raises `ContractBroken` unless the trainer counts as many steps.

    They differ if the trainer skipped an optimizer step, or if the optimizer took one without the trainer.
    """
    event, counted = event_from_opacus_history(value.accountant), int(value.trainer.state.global_step)
    if number_of_steps(event) != counted:
        raise ContractBroken(
            f"Expected the trainer's global_step={counted} to be the {number_of_steps(event)} steps of its accountant."
        )
    return event


def event_from_reported_object(reported: Any) -> DpEvent:
    """The event of what a script reports; raises `UnsupportedEvent` if no reader knows it.

    An event of dp_accounting, which JAX-Privacy emits, or one of ours is recognised by the name of its class.
    """
    if isinstance(reported, TrainerState):
        return event_from_trainer_accountant(reported)
    if _is_opacus_accountant_or_engine(reported):
        return event_from_opacus_history(reported)
    if type(reported).__name__.endswith("DpEvent"):
        return from_dp_accounting(reported)
    raise UnsupportedEvent(
        f"Expected event={type(reported).__name__} to be an accountant of Opacus, a DpEvent of dp_accounting, or "
        "dpsweep.TrainerState(trainer=..., accountant=...)."
    )


def check_reported_event(reported: DpEvent, declared: DpEvent, *, steps: int, taken: object = None) -> None:
    """Raises `ContractBroken` unless `reported` has `steps` steps, each costing at most a step of `declared`.

    `taken` is the number of steps that the script took from `each_step`, None if it took none from there.
    A step costs no more if its noise multiplier is at least the declared one and its sampling rate at most.
    *Source*: both only make a subsampled Gaussian mechanism more private, under either adjacency.
    """
    ran = number_of_steps(reported)
    if ran != steps:
        raise ContractBroken(f"The script differs from its charge: it reports {ran} steps, and {steps} were declared.")
    if taken not in (None, steps):
        raise ContractBroken(f"The script differs from its charge: it took {taken} of {steps} steps from each_step.")
    for one, _ in leaves_with_counts(reported):
        if not any(_costs_no_more_than_declared(one, other) for other, _ in leaves_with_counts(declared)):
            raise ContractBroken(
                f"The script differs from its charge: it reports steps of {_step_in_words(one)}, and "
                f"{', '.join(_step_in_words(other) for other, _ in leaves_with_counts(declared))} was declared."
            )


def _costs_no_more_than_declared(one: DpEvent, declared: DpEvent) -> bool:
    if are_same_events(declared, non_private()):
        return True
    fixed, other = as_fixed_batch_step(one), as_fixed_batch_step(declared)
    if fixed is not None and other is not None:
        return 0 <= fixed[0] * other[1] <= other[0] * fixed[1] and fixed[2] >= other[2]
    step, limit = as_gaussian_step(one), as_gaussian_step(declared)
    return step is not None and limit is not None and 0 <= step[0] <= limit[0] and step[1] >= limit[1]


def _step_in_words(event: DpEvent) -> str:
    """A step for a message, with its exact numbers: the curator compares them with those of the script."""
    if (fixed := as_fixed_batch_step(event)) is not None:
        return f"batch size {fixed[0]} of {fixed[1]} records and noise multiplier {fixed[2]!r}"
    if (step := as_gaussian_step(event)) is not None:
        return f"sampling rate {step[0]!r} and noise multiplier {step[1]!r}"
    return event_name(event)
