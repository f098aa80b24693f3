"""Tuning by composition (the papers' "MA"): every point is run once and paid for, so all results may be released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from dpsweep.accounting import validation
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.selection.interface import (
    Disclosure,
    Draw,
    Proposals,
    Search,
    SelectionRule,
    require_at_least_one_point,
)


@dataclass(frozen=True, kw_only=True)
class Composition(SelectionRule):
    """Runs every declared point once, at the price of all of them.

    *Guarantee*: covers adaptive choice of lr, clip norm, regularizer and optimiser among the declared points, since
    noise, sampling, steps and the number of runs are fixed beforehand.
    *Source*: adaptive composition of Renyi DP (Mironov 2017, Proposition 1) and of privacy-loss distributions.
    """

    works: ClassVar[tuple[str, ...]] = ("mironov2017renyi",)
    name: ClassVar[str] = "composition"
    discloses: ClassVar[frozenset[Disclosure]] = frozenset(Disclosure)
    """Everything: each run is paid for in full."""

    def search_kind(self, search: Search) -> str:
        """Every point, or the points that a sampler proposes."""
        return "every_point" if search.proposals is Proposals.FIXED else "proposed_points"

    def check_search_is_covered(self, search: Search) -> None:
        """Accepts every search: proposals and pruning only read results that are paid for."""

    def expected_tries(self, n_points: int) -> float:
        """All points."""
        return float(n_points)

    def chance_of_trying_best_share(self, n_points: int, share: float) -> float:
        """1: every point is tried."""
        require_at_least_one_point(n_points)
        validation.share("share", share)
        return 1.0

    def draw_tries(self, n_points: int, rng: Random) -> Draw:
        """All points, in the order of the grid; no randomness is used."""
        require_at_least_one_point(n_points)
        return Draw(tries=tuple(range(n_points)))

    def _event_of_points(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The composition of all points, for the training records and for the held-out records."""
        scored = [trial.validation for trial in trials if trial.validation is not None]
        return PlanEvent(
            training=events.compose(trial.training for trial in trials),
            validation=events.compose(scored) if scored else None,
        )
