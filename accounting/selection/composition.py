"""Tuning by composition (the papers' "MA"): every point is run once and paid for, so all results may be released."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
)


@dataclass(frozen=True, kw_only=True)
class WholeGrid:
    """Each of so many points once, in the order of the grid.

    With a `noise_scale`, each has a handicap in counts of right predictions: Gumbel noise of that scale.
    """

    points: int
    noise_scale: float | None = None

    @property
    def expected(self) -> float:
        """All points."""
        return float(self.points)

    def chance_of_best(self, share: float) -> float:
        """1: every point is tried."""
        validation.share("share", share)
        return 1.0

    def draw(self, rng: Random) -> Draw:
        """All points; no randomness is used but for handicaps."""
        scales = [self.noise_scale] * self.points if self.noise_scale else []
        noises = tuple(-scale * math.log(rng.expovariate(1.0)) for scale in scales)
        return Draw(tries=tuple(range(self.points)), handicaps=noises)

    def conditions_on_draw(self, draw: Draw) -> Mapping[str, bool]:
        """Every point once, with a noise for each if counts are compared under noise."""
        finite = [noise for noise in draw.handicaps if isinstance(noise, float) and math.isfinite(noise)]
        noises = self.points if self.noise_scale else 0
        return {
            "try each point once": draw.tries == tuple(range(self.points)),
            f"have a finite noise for each of {noises} points": len(finite) == len(draw.handicaps) == noises,
            "have no threshold": draw.threshold is None,
        }


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

    def _tries_over_points(self, n_points: int) -> WholeGrid:
        """All points, in the order of the grid."""
        return WholeGrid(points=n_points)

    def _event_of_points(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The composition of all points, for the training records and for the held-out records."""
        scored = [trial.validation for trial in trials if trial.validation is not None]
        return PlanEvent(
            training=events.compose(trial.training for trial in trials),
            validation=events.compose(scored) if scored else None,
        )


@dataclass(frozen=True, kw_only=True)
class Public(Composition):
    """Runs the one point that won a sweep on data declared public; `sweep` is the id of that sweep's plan.

    *Guarantee*: the price of what runs here, as under composition, and nothing for the search: it read no private
    record. The curator asserts that its data are public, and reports repeat this. Hyperparameters transfer only as far
    as the data sets are alike. Everything may be released.
    """

    name: ClassVar[str] = "public"

    sweep: str

    def __post_init__(self) -> None:
        if not isinstance(self.sweep, str) or not self.sweep.strip():
            raise ValueError(f"Expected sweep={self.sweep!r} to be the id of the public sweep's plan.")
