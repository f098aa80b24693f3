"""Prices of events by several accountants at once.

The price is that of `accounting/upper_bounds.py`. An accountant that the user names raises it to its own upper bound,
or to the smallest of several. Others are compared with it, and bounds that contradict each other are not reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import AccountantsDisagree, UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.lower_bounds.forced_epsilon import lower_bound_of_accountant
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.accounting.notation import text_with_all_digits
from dpsweep.accounting.profiles.privacy_profiles import Profile, directions_of
from dpsweep.accounting.upper_bounds import TRUSTED, trusted_bound, upper_bound

ATTACK = "an attack"
"""The name of the explicit attack, among those who prove a lower bound."""

MOST_KEPT = 256
"""The quotes that a panel keeps."""


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
        key = event, delta, adjacency, unit
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

        It is computed from the profile that PLD prices the event by.
        """
        profiled = next((one for one in (*self.claimants, *self.witnesses) if isinstance(one, Pld)), None)
        if profiled is None:
            return None
        try:
            profiles = [profiled.profile(one, adjacency) for one in event.events_by_population.values()]
        except UnsupportedEvent:
            return None
        return max(map(_total_variation, profiles))

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
            lowers = {voice.name: lower_bound_of_accountant(voice, inner, delta, adjacency) for voice in able}
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


_FARTHEST, _RELATIVE = 6.0, 1e-9
"""The largest epsilon at which the delta of a search is asked for, and more than the relative error of quotients."""


def _total_variation(profile: Profile) -> float:
    """An upper bound on the total variation of both directions, by delta at 0 or, where that is not tight, beyond.

    *Source*: Kairouz, Oh, Viswanath 2015 (The Composition Theorem for DP), Theorem 3.4: it is at most
    (exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1).
    """

    def bounds_at(epsilons: np.ndarray) -> np.ndarray:
        deltas = directions_of(profile)[0].delta(epsilons)
        return np.asarray((np.expm1(epsilons) + 2 * deltas) / (np.exp(epsilons) + 1))

    first, second = bounds_at(np.array([0.0, 1.0]))
    least = first if first < second else bounds_at(np.linspace(0.0, _FARTHEST, 13)).min()
    return float(min(1.0, least * (1 + _RELATIVE)))


def bounds_and_refusals(
    accountants: Sequence[Accountant], event: PlanEvent, delta: float, adjacency: Adjacency
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Each accountant's bounds for the populations that it can bound, and the reasons of those that refuse one."""
    bounds: dict[str, dict[str, float]] = {}
    refusals: dict[str, str] = {}
    for accountant in accountants:
        for name, part in event.events_by_population.items():
            try:
                one: Any = accountant
                price = partial(trusted_bound, one) if accountant in TRUSTED else accountant.epsilon
                bound = price(part, delta, adjacency)
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
