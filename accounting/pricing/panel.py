"""Prices of events by several accountants at once.

Every accountant on a panel gives an upper bound, so the smallest bound at a delta fixed beforehand is an upper bound
too. Bounds that contradict each other are not reported at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.errors import AccountantsDisagree, UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.accounting.notation import text_with_all_digits
from dpsweep.accounting.profiles.selection_envelope import total_variation_of_profile

ATTACK = "an attack"
"""The name of the explicit attack, among those who prove a lower bound."""


@dataclass(frozen=True, kw_only=True)
class Quote:
    """The price of an event: the claim, and each accountant's answer.

    `bounds` maps an accountant to its upper bound on the whole, `refusals` one to the reason why it has none for a
    part, `parts` a population (training, validation) to its share of the claim, by the accountant that is tightest
    there; the claim is the largest part. `bounds_by_part` maps a population to the upper bound of each accountant that
    has one there: bounds on the whole that agree may be those on one population alone.

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


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The accountants that may make the claim, and the witnesses that only cross-check it.

    *Guarantee*: `quote` is an upper bound; it raises `AccountantsDisagree` when one accountant's lower bound lies above
    another's upper bound, and `UnsupportedEvent` when no accountant that may claim can bound the event.
    """

    claimants: tuple[Accountant, ...]
    witnesses: tuple[Accountant, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "claimants", tuple(self.claimants))
        object.__setattr__(self, "witnesses", tuple(self.witnesses))
        if not self.claimants:
            raise ValueError(f"Expected claimants={self.claimants} to hold at least one accountant.")

    def epsilon(self, event: PlanEvent, delta: float, adjacency: Adjacency) -> float:
        """The claim alone, without witnesses, for calibration, which evaluates it many times."""
        claims, refusals = _bounds_and_refusals(self.claimants, event, delta, adjacency)
        return max(bound for _, bound in _tightest_bounds_by_population(claims, refusals, event).values())

    def quote(self, event: PlanEvent, delta: float, adjacency: Adjacency, unit: str = "record") -> Quote:
        """The claim, with all further values that a report shows beside it."""
        claims, refusals = _bounds_and_refusals(self.claimants, event, delta, adjacency)
        tightest = _tightest_bounds_by_population(claims, refusals, event)
        claim = max(bound for _, bound in tightest.values())
        opinions, unsupported = _bounds_and_refusals(self.witnesses, event, delta, adjacency)
        voices = opinions | claims
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
            claimed_by=next(alone, None) or " and ".join(dict.fromkeys(name for name, _ in tightest.values())),
            bounds=bounds,
            refusals=unsupported | refusals,
            parts={part: bound for part, (_, bound) in tightest.items()},
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
            profiles = [profiled.profile(part, adjacency) for part in parts if profiled is not None]
            return max(map(total_variation_of_profile, profiles), default=None)
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
            for name, lower in lowers.items():
                _check_lower_below_upper_bounds(name, lower, uppers)
            for name in (ATTACK, *(voice.name for voice in able if isinstance(voice, Pld))):
                proven[name] = max(proven.get(name, 0.0), lowers[name])
        return proven


def _bounds_and_refusals(
    accountants: tuple[Accountant, ...], event: PlanEvent, delta: float, adjacency: Adjacency
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Each accountant's bounds for the populations that it can bound, and the reasons of those that refuse one."""
    claims: dict[str, dict[str, float]] = {}
    refusals: dict[str, str] = {}
    for accountant in accountants:
        for name, part in event.events_by_population.items():
            try:
                bound = accountant.epsilon(part, delta, adjacency)
            except UnsupportedEvent as refusal:
                refusals.setdefault(accountant.name, str(refusal))
            else:
                claims.setdefault(accountant.name, {})[name] = bound
    return claims, refusals


def _tightest_bounds_by_population(
    claims: Mapping[str, Mapping[str, float]], refusals: Mapping[str, str], event: PlanEvent
) -> dict[str, tuple[str, float]]:
    """The tightest bound on each population, and its accountant; populations are disjoint, so each may have its own."""
    tightest = {}
    for part in event.events_by_population:
        able = [(name, bounds[part]) for name, bounds in claims.items() if part in bounds]
        if not able:
            raise UnsupportedEvent(f"No accountant can bound this plan: {' '.join(refusals.values())}")
        tightest[part] = min(able, key=lambda one: one[1])
    return tightest


def _check_lower_below_upper_bounds(who: str, lower: float, bounds: Mapping[str, float]) -> None:
    for other, upper in bounds.items():
        if lower > upper:
            raise AccountantsDisagree(
                f"{who[0].upper()}{who[1:]} puts epsilon at {text_with_all_digits(lower)} or more, {other} at "
                f"{text_with_all_digits(upper)} or less: one of them is wrong here, so neither is reported."
            )
