"""Prices of events by several accountants at once.

The price is that of `accounting/upper_bounds.py`. An accountant that the user names raises it to its own upper bound,
or to the smallest of several. Others are compared with it, and bounds that contradict each other are not reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import AccountantsDisagree, UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.accounting.notation import text_with_all_digits
from dpsweep.accounting.upper_bounds import (
    ATTACK,
    MOST_KEPT,
    TRUSTED,
    Quote,
    bounds_and_refusals,
    key_of_price,
    tightest_bound_of_parts,
    upper_bound,
)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The accountants that a user names, and the witnesses that only cross-check the price.

    *Guarantee*: `quote` is never below `upper_bound`. It is the smallest bound of `claimants`, where that is above it.
    It raises `AccountantsDisagree` when one accountant's lower bound lies above another's upper bound, and
    `UnsupportedEvent` when no accountant that is named, or no theorem that is trusted, can bound the event.
    """

    claimants: tuple[Accountant, ...]
    witnesses: tuple[Accountant, ...] = ()
    _quotes: dict[object, Quote] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Those that were asked for: a charge asks for its plan's once more, and half of its time is the lower bounds'."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "claimants", tuple(self.claimants))
        object.__setattr__(self, "witnesses", tuple(self.witnesses))
        if not self.claimants:
            raise ValueError(f"Expected claimants={self.claimants} to hold at least one accountant.")

    def epsilon(self, event: PlanEvent, delta: float, adjacency: Adjacency) -> float:
        """The claim alone, without witnesses, for calibration, which evaluates it many times.

        On coarser grids, or at fewer orders, PLD and RDP may be below the price in the last digits.
        """
        claims, refusals = bounds_and_refusals(self.claimants, event, delta, adjacency)
        named = max(bound for _, bound in tightest_bound_of_parts(claims, refusals, event).values())
        if all(isinstance(one, (Pld, Rdp)) for one in self.claimants):
            return named
        return max(named, upper_bound(event, delta, adjacency))

    def quote(self, event: PlanEvent, delta: float, adjacency: Adjacency, unit: str = "record") -> Quote:
        """The claim, with all further values that a report shows beside it."""
        key = key_of_price(event, delta, adjacency), unit
        if key not in self._quotes:
            if len(self._quotes) >= MOST_KEPT:
                self._quotes.clear()
            self._quotes[key] = self._quote(event, delta, adjacency, unit)
        return self._quotes[key]

    def _quote(self, event: PlanEvent, delta: float, adjacency: Adjacency, unit: str) -> Quote:
        claims, refusals = bounds_and_refusals(self.claimants, event, delta, adjacency)
        named = tightest_bound_of_parts(claims, refusals, event)
        least = tightest_bound_of_parts(*bounds_and_refusals(TRUSTED, event, delta, adjacency), event)
        claimed = {part: max(one, least[part], key=lambda bound: bound[1]) for part, one in named.items()}
        claim = max(bound for _, bound in claimed.values())
        voices, unsupported = bounds_and_refusals(self.witnesses, event, delta, adjacency)
        voices |= claims
        for part, (name, bound) in claimed.items():
            voices[name] = voices.get(name, {}) | {part: bound}
        whole = {name: parts for name, parts in voices.items() if parts.keys() == event.events_by_population.keys()}
        bounds = {name: max(parts.values()) for name, parts in whole.items()}
        bounds_by_part = {
            part: {name: bounds[part] for name, bounds in voices.items() if part in bounds}
            for part in event.events_by_population
        }
        lower = self._proven_lower_bounds(event, delta, adjacency, bounds_by_part)
        lower_by = max(lower, key=lambda name: lower[name])
        alone = (name for name in claims if bounds.get(name) == claim)
        return Quote(
            guarantee=Guarantee(epsilon=claim, delta=delta, adjacency=adjacency, unit=unit),
            claimed_by=next(alone, None) or " and ".join(dict.fromkeys(name for name, _ in claimed.values())),
            bounds=bounds,
            refusals=unsupported | refusals,
            parts={part: bound for part, (_, bound) in claimed.items()},
            bounds_by_part=bounds_by_part,
            lower=lower[lower_by],
            lower_by=lower_by,
            attack=lower[ATTACK],
        )

    def total_variation(self, event: PlanEvent, adjacency: Adjacency) -> float | None:
        """An upper bound on the total variation between neighbours' results; None if no accountant here has a profile.

        It is computed from the profile that PLD prices the event by, at epsilon 0.
        """
        profiled = next((one for one in (*self.claimants, *self.witnesses) if isinstance(one, Pld)), None)
        parts = event.events_by_population.values()
        try:
            return None if profiled is None else max(profiled.total_variation(part, adjacency) for part in parts)
        except UnsupportedEvent:
            return None

    def _proven_lower_bounds(
        self, event: PlanEvent, delta: float, adjacency: Adjacency, bounds_by_part: Mapping[str, Mapping[str, float]]
    ) -> dict[str, float]:
        """What the attack and PLD prove of the whole, which costs at least each of its populations.

        Every lower bound is compared with every upper bound on the same population. PRV's is not told further: it
        leaves the rounding of its transform out.
        """
        proven = {ATTACK: 0.0}
        for part, inner in event.events_by_population.items():
            uppers = bounds_by_part[part]
            able = [voice for voice in (*self.claimants, *self.witnesses) if voice.name in uppers]
            lowers = {voice.name: voice.lower(inner, delta, adjacency) for voice in able}
            lowers[ATTACK] = lower_bound(inner, delta, adjacency)
            for (name, lower), (other, upper) in product(lowers.items(), uppers.items()):
                if lower > upper:
                    raise AccountantsDisagree(
                        f"{name[0].upper()}{name[1:]} puts epsilon at {text_with_all_digits(lower)} or more, {other} "
                        f"at {text_with_all_digits(upper)} or less: one of them is wrong here, so neither is reported."
                    )
            for name in (ATTACK, *(voice.name for voice in able if isinstance(voice, Pld))):
                proven[name] = max(proven.get(name, 0.0), lowers[name])
        return proven
