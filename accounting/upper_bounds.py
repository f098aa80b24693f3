"""The price of an event: the least bound of the trusted theorems, which nobody outside can lower.

The ledger charges `quote_for_charge` and takes no number from anybody. Invariants:

* `upper_bound` is the least of the bounds of `TRUSTED` on each population, and the largest over the populations. The
  rounding of noise is in it (`accounting/rounded_noise_price.py`).
* Whoever is outside (an accountant that the user names, another one, a lower bound, an attack) may raise a price or
  refuse it.
* A bound is remembered by its event within a process, so that a plan and its charge compute it once.

Rule for changing what a bound comes to: where one may rise by more than `CLOSE`, raise `PRICES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import AccountantsDisagree, UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent, PlanEvent
from dpsweep.accounting.events.types import canonical_text
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.notation import text_with_all_digits

TRUSTED: tuple[Accountant, ...] = (Pld(), Rdp())
"""The accountants whose least bound is the price."""

PRICES = 1
"""The version of the bounds, which a charge records."""

CLOSE = 1e-6
"""Bounds closer than this, relatively, are the same number: machines differ in the last digits."""

ATTACK = "an attack"
"""The name of the explicit attack, among those who prove a lower bound."""


@dataclass(frozen=True, kw_only=True)
class Quote:
    """The price of an event: the claim, and each accountant's answer.

    `bounds` maps an accountant to its upper bound on the whole, `refusals` one to the reason why it has none for a
    part, `parts` a population (training, validation) to its share of the claim, by the accountant that claims it there;
    the claim is the largest part. `bounds_by_part` maps a population to the upper bound of each accountant that has one
    there: bounds on the whole that agree may be those on one population alone.

    `lower` is the largest proven lower bound on the true epsilon, 0 if there is none, and `lower_by` names its proof.
    `attack` is that by an explicit attack on the whole procedure (an aligned canary, the worst score).
    """

    guarantee: Guarantee
    claimed_by: str
    bounds: Mapping[str, float]
    refusals: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    bounds_by_part: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    lower: float = 0.0
    lower_by: str = ATTACK
    attack: float = 0.0

    @property
    def epsilon(self) -> float:
        """The claimed upper bound."""
        return self.guarantee.epsilon

    def to_record(self) -> dict[str, Any]:
        """What a charge records beside its amounts."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "guarantee"}


class Opinions(Protocol):
    """Accountants that may raise a price, and witnesses that may refuse it."""

    def quote(self, event: PlanEvent, delta: float, adjacency: Adjacency, unit: str = "record") -> Quote:
        """The price by their opinion; raises `AccountantsDisagree` where bounds contradict each other."""

    def total_variation(self, event: PlanEvent, adjacency: Adjacency) -> float | None:
        """An upper bound on the total variation between neighbours' results; None if none is known."""


def upper_bound(event: PlanEvent, delta: float, adjacency: Adjacency) -> float:
    """The least proven bound on epsilon.

    *Guarantee*: at every delta in (0, 1) never below the true epsilon of `event` under `adjacency`. Raises
    `UnsupportedEvent` if no theorem bounds one of its populations, also where others would.
    """
    bounds, refusals = bounds_and_refusals(TRUSTED, event, delta, adjacency)
    return max(bound for _, bound in tightest_bound_of_parts(bounds, refusals, event).values())


def quote_for_charge(event: PlanEvent, delta: float, adjacency: Adjacency, unit: str, opinions: Opinions) -> Quote:
    """The price that a charge takes: `upper_bound`, or a larger one by these opinions.

    Raises `AccountantsDisagree` if they put it lower, or contradict each other.
    """
    bound = upper_bound(event, delta, adjacency)
    quote = opinions.quote(event, delta, adjacency, unit)
    if not quote.epsilon >= bound:
        raise AccountantsDisagree(
            f"This was priced at epsilon {text_with_all_digits(quote.epsilon)}, and costs {text_with_all_digits(bound)}"
            ": nothing was charged."
        )
    return quote


def bounds_and_refusals(
    accountants: Sequence[Accountant], event: PlanEvent, delta: float, adjacency: Adjacency
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Each accountant's bounds for the populations that it can bound, and the reasons of those that refuse one."""
    bounds: dict[str, dict[str, float]] = {}
    refusals: dict[str, str] = {}
    for accountant in accountants:
        for name, part in event.events_by_population.items():
            try:
                bound = _remembered_bound(accountant, part, delta, adjacency)
            except UnsupportedEvent as refusal:
                refusals.setdefault(accountant.name, str(refusal))
            else:
                bounds.setdefault(accountant.name, {})[name] = bound
    return bounds, refusals


def tightest_bound_of_parts(
    bounds: Mapping[str, Mapping[str, float]], refusals: Mapping[str, str], event: PlanEvent
) -> dict[str, tuple[str, float]]:
    """The tightest bound on each population, and its accountant; populations are disjoint, so each may have its own."""
    tightest = {}
    for part in event.events_by_population:
        able = [(name, parts[part]) for name, parts in bounds.items() if part in parts]
        if not able:
            raise UnsupportedEvent(f"No accountant can bound this plan: {' '.join(refusals.values())}")
        tightest[part] = min(able, key=lambda one: one[1])
    return tightest


def key_of_price(event: PlanEvent, delta: float, adjacency: Adjacency) -> object:
    """Equal for equal events, as `compose` orders them, at the same delta for the same neighbours."""
    return tuple((name, canonical_text(part)) for name, part in event.events_by_population.items()), delta, adjacency


MOST_KEPT = 256
"""The bounds, and the quotes of a panel, that a process keeps."""

_BOUNDS: dict[tuple[str, str, float, Adjacency], float] = {}


def _remembered_bound(accountant: Accountant, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
    """The bound of an accountant; that of a trusted one is kept for the next one who asks for the same event."""
    if accountant not in TRUSTED:
        return accountant.epsilon(event, delta, adjacency)
    key = accountant.name, canonical_text(event), delta, adjacency
    if key not in _BOUNDS:
        if len(_BOUNDS) >= MOST_KEPT:
            _BOUNDS.clear()
        _BOUNDS[key] = accountant.epsilon(event, delta, adjacency)
        if not _BOUNDS.get(key, 0.0) >= 0:
            raise ArithmeticError(f"Expected the bound of {accountant.name} to be a number, got {_BOUNDS.pop(key)}.")
    return _BOUNDS[key]
