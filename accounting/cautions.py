"""Explanations of a large delta for users, and the refusal of one.

A delta is the probability with which all protection may fail. A program that publishes each unit's records in full
with probability delta satisfies (0, delta)-differential privacy, and publishes delta times the number of units on
average. So a delta of 1 / units or more promises no single unit anything, whatever the epsilon (Dwork and Roth 2014,
Section 2.3). Invariants:

* The number of units is the declared one (`dataset.units`, or `dataset.records` if each record is a unit), a public
  constant that the sample rate shows already. The actual number is private, and is never counted here.
* A delta of 1 / units or more is charged only if a user typed the same number again as `privacy.accept_delta`. The
  ledger stores that with the charge; it is no part of the plan and changes no identity.
* Sentences contain the numbers that a page shows, never numbers that are written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.meaning import Meaning
from dpsweep.accounting.notation import (
    delta_text_rounded_up,
    text_with_all_digits,
)


def mean_published_units(delta: float, units: int) -> Decimal:
    """The exact mean number of units published by a program that publishes each in full with probability delta.

    >>> mean_published_units(0.05, 1000)
    Decimal('50.00')
    """
    return Decimal(repr(float(delta))) * units


def is_large_delta(delta: float, units: int) -> bool:
    """Whether delta >= 1 / units, for this declared number of units; exact.

    >>> is_large_delta(0.001, 1000), is_large_delta(0.000999, 1000)
    (True, False)
    """
    return mean_published_units(delta, units) >= 1


def is_noticeable_delta(delta: float, units: int) -> bool:
    """Whether delta is above a tenth of 1 / units."""
    return mean_published_units(delta, units) > Decimal("0.1")


def left_out_records_sentence(dataset: Mapping[str, Any]) -> str | None:
    """That a declared rule leaves records of the files out, by the data set's stored declaration; None without one."""
    rule = dataset.get("left_out")
    if not rule:
        return None
    return f"Of the files, {rule} are left out; the rule looks at each record alone, so it costs no privacy."


def require_small_or_accepted_delta(delta: float, units: int, unit: str, accepted: object) -> None:
    """Raises `BadInput` for a delta of 1 / units or more, unless `accepted` is the same number."""
    if not is_large_delta(delta, units) or is_accepted_delta(accepted, delta):
        return
    again = f"privacy.accept_delta={text_with_all_digits(delta)}"
    if accepted is not None:
        raise BadInput(f"Expected privacy.accept_delta={accepted} to be privacy.delta once more, {again}, or null.")
    raise BadInput(
        f"Expected privacy.delta={text_with_all_digits(delta)} to be below 1 / {units}, one over the declared number "
        f"of {unit}s: "
        f"{_phrase_on_program_with_this_delta(delta, units, unit)}. Lower it, or type {again} to accept it, which "
        "every page of this sweep will show."
    )


def noticeable_delta_sentence(delta: float, units: int, unit: str) -> str:
    """The meaning of a delta for this number of units, if it is above a tenth of 1 / units; empty below.

    >>> noticeable_delta_sentence(0.05, 1000, "record")[:57]
    'Delta 0.05 is large for the declared 1000 records: a prog'
    >>> noticeable_delta_sentence(1e-5, 1000, "record")
    ''
    """
    if not is_noticeable_delta(delta, units):
        return ""
    size = "large" if is_large_delta(delta, units) else "not small"
    satisfied = _phrase_on_program_with_this_delta(delta, units, unit)
    return f"Delta {delta_text_rounded_up(delta)} is {size} for the declared {units} {unit}s: {satisfied}."


def delta_acceptance_sentence(delta: float, units: int, accepted: float | None) -> str:
    """A sentence on who accepted a delta of 1 / units or more; empty below."""
    if not is_large_delta(delta, units):
        return ""
    if accepted is None:
        return "Nobody accepted this delta when the search was charged."
    return (
        f"Whoever ran the search accepted this delta by typing privacy.accept_delta={text_with_all_digits(accepted)}."
    )


def _phrase_on_program_with_this_delta(delta: float, units: int, unit: str) -> str:
    """A phrase for a program that satisfies this delta, for the middle of a sentence."""
    return (
        f"a program that publishes each {unit} in full with probability {delta_text_rounded_up(delta)}, on average "
        f"{delta_text_rounded_up(mean_published_units(delta, units))} {unit}s, has this delta too"
    )


def caution_sentences(meaning: Meaning, units: int | None, accepted: float | None) -> tuple[str, ...]:
    """The cautions on a claim whose epsilon or delta is large, each in a sentence or two; none for other claims.

    Without a number of units there is none on delta.
    """
    guarantee, large = meaning.guarantee, ""
    if units is not None:
        noticeable = noticeable_delta_sentence(guarantee.delta, units, guarantee.unit)
        large = f"{noticeable} {delta_acceptance_sentence(guarantee.delta, units, accepted)}".strip()
    return tuple(filter(None, (meaning.harm_sentence, large)))


def is_accepted_delta(accepted: object, delta: float) -> bool:
    """Whether the value typed as `privacy.accept_delta` equals this delta."""
    return not isinstance(accepted, bool) and isinstance(accepted, (int, float)) and float(accepted) == delta
