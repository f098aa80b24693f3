"""What a plan costs, by several accountants at once.

Every accountant on a panel gives an upper bound, so the smallest one at a delta fixed beforehand is an upper bound too.
Bounds that contradict each other are not reported at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from accounting.accountant import Accountant, plan_epsilon
from accounting.errors import AccountantsDisagree, UnsupportedEvent
from accounting.events import PlanEvent
from accounting.guarantee import Adjacency, Guarantee


@dataclass(frozen=True, kw_only=True)
class Quote:
    """The price of an event: the claim, and what each accountant said.

    `bounds` maps an accountant to its upper bound, `refusals` one to its reason, `parts` a population (training,
    validation) to its share of the claim; the claim is the larger part.
    """

    guarantee: Guarantee
    claimed_by: str
    bounds: Mapping[str, float]
    refusals: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def epsilon(self) -> float:
        """The claimed upper bound."""
        return self.guarantee.epsilon


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The accountants that may claim, and the witnesses that only cross-check.

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
        """The claim alone, without witnesses: what calibration evaluates again and again."""
        bounds, refusals = _ask(self.claimants, event, delta, adjacency)
        return bounds[_tightest(bounds, refusals)]

    def quote(self, event: PlanEvent, delta: float, adjacency: Adjacency, unit: str = "record") -> Quote:
        """The claim with everything that a report wants to show beside it."""
        bounds, refusals = _ask(self.claimants, event, delta, adjacency)
        claimed_by = _tightest(bounds, refusals)
        claimant = next(accountant for accountant in self.claimants if accountant.name == claimed_by)
        told, unable = _ask(self.witnesses, event, delta, adjacency)
        bounds, refusals = told | bounds, unable | refusals
        voices = [voice for voice in (*self.claimants, *self.witnesses) if voice.name in bounds]
        for voice in voices:
            lower = max(voice.lower(part, delta, adjacency) for part in event.parts.values())
            for other, upper in bounds.items():
                if lower > upper:
                    raise AccountantsDisagree(
                        f"{voice.name} puts epsilon at {lower:.4f} or more, {other} at {upper:.4f} or less: "
                        "one of them is wrong here, so neither is reported."
                    )
        return Quote(
            guarantee=Guarantee(epsilon=bounds[claimed_by], delta=delta, adjacency=adjacency, unit=unit),
            claimed_by=claimed_by,
            bounds=bounds,
            refusals=refusals,
            parts={name: claimant.epsilon(part, delta, adjacency) for name, part in event.parts.items()},
        )


def _ask(
    accountants: tuple[Accountant, ...], event: PlanEvent, delta: float, adjacency: Adjacency
) -> tuple[dict[str, float], dict[str, str]]:
    bounds: dict[str, float] = {}
    refusals: dict[str, str] = {}
    for accountant in accountants:
        try:
            bounds[accountant.name] = plan_epsilon(accountant, event, delta, adjacency)
        except UnsupportedEvent as refusal:
            refusals[accountant.name] = str(refusal)
    return bounds, refusals


def _tightest(bounds: Mapping[str, float], refusals: Mapping[str, str]) -> str:
    if not bounds:
        raise UnsupportedEvent(f"No accountant can bound this plan: {' '.join(refusals.values())}")
    return min(bounds, key=bounds.__getitem__)
