"""What an Opacus accountant recorded, as an event: the noise multiplier, sampling rate and number of its steps."""

from __future__ import annotations

from typing import Any

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import DpEvent, compose, poisson_gaussian, repeat


def reads(value: Any) -> bool:
    """Whether this is an accountant of Opacus or its privacy engine, by what they have."""
    return isinstance(getattr(_accountant(value), "history", None), list)


def opacus_history(value: Any) -> DpEvent:
    """The event of `accountant.history`, which lists (noise multiplier, sampling rate, steps); also of an engine's.

    Opacus appends to it at every step of its optimizer, so the number of steps is that of the optimizer.
    Raises `ContractBroken` if the history is none of these numbers.
    """
    history = _accountant(value).history
    try:
        entries = [(float(noise), float(rate), int(steps)) for noise, rate, steps in history]
        return compose(
            repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps) for noise, rate, steps in entries
        )
    except (TypeError, ValueError) as cause:
        raise ContractBroken(f"Expected history={history!r} to be one of Opacus: {cause}") from cause


def _accountant(value: Any) -> Any:
    return getattr(value, "accountant", value)
