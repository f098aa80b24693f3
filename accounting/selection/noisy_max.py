"""Tuning by a noisy maximum: every point once, counts compared under Gumbel noise, only the winner released."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting import validation
from dpsweep.accounting.codec import Positive
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.notation import text_with_all_digits
from dpsweep.accounting.selection.composition import Composition, WholeGrid
from dpsweep.accounting.selection.interface import (
    ACCURACY,
    Disclosure,
    Search,
    SelectionRule,
    check_search_allows_hiding_losers,
)


@dataclass(frozen=True, kw_only=True)
class NoisyMax(SelectionRule):
    """Runs every point once; held-out records pay for one noisy maximum, training records for all the runs.

    *Guarantee*: for the held-out records 1 / `noise_scale` (2 / `noise_scale` if a record is replaced) for any number
    of points. The Gumbel noise, with a scale of `noise_scale` correct predictions, is part of the draw, as handicaps;
    noise that the counts already have may stay, and may be small. The winner may be released, its score never. If
    scores are public, composition costs the same and may release everything, so these plans do not run.
    *Source*: McSherry and Talwar 2007 (the exponential mechanism); Durfee and Rogers 2019, Lemma 4.2.
    """

    works: ClassVar[tuple[str, ...]] = ("mcsherry2007mechanism", "durfee2019practical")
    name: ClassVar[str] = "noisy_max"
    discloses: ClassVar[frozenset[Disclosure]] = frozenset({Disclosure.WINNER, Disclosure.NUMBER_OF_TRIES})
    """The winner without its score, and the number of runs, which is that of the points."""

    draws_in_secret: ClassVar[bool] = True

    noise_scale: Positive

    def search_kind(self, search: Search) -> str:
        """A secret draw, which has every point once and the noise of the comparison."""
        return "secret_draw"

    def check_search_is_covered(self, search: Search) -> None:
        """Refuses adaptive proposals and pruning: they would read counts that are not paid for."""
        check_search_allows_hiding_losers(self.name, search)

    def _tries_over_points(self, n_points: int) -> WholeGrid:
        """All points, in the order of the grid, each with a handicap in counts of correct predictions."""
        return WholeGrid(points=n_points, noise_scale=self.noise_scale)

    def _event_of_points(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The composition of all runs for the training records, one noisy maximum for the held-out ones."""
        validation.positive_int("n_points", len(trials))
        scored = any(trial.validation is not None for trial in trials)
        return PlanEvent(
            training=events.compose(trial.training for trial in trials),
            validation=events.noisy_max(noise_scale=self.noise_scale) if scored else None,
        )

    def is_event_charged_for_trials(self, event: PlanEvent, trials: Sequence[PlanEvent]) -> bool:
        """Only plans with private scores are run."""
        return event.validation is not None and super().is_event_charged_for_trials(event, trials)

    def refusal_of_scores_sentence(self, *, private: bool, metrics: Collection[str]) -> str:
        """Noisy numbers of right predictions alone are compared."""
        if not private:
            return (
                f"Expected score=private under {self.name}: public scores need no noise, and tuning=composition shows "
                "all of them for the same price."
            )
        for metric in sorted({*metrics} - {ACCURACY}):
            return (
                f"Expected score.metric={metric} to be {ACCURACY} under {self.name}: its noise is for numbers of right "
                "predictions."
            )
        return ""

    def event_of_run_alone(self, trial: PlanEvent) -> PlanEvent:
        """The run and a comparison: the count itself, whose own noise may be small, is never told."""
        return self.event([trial])

    @property
    def rule_to_solve_score_noise_under(self) -> SelectionRule:
        """The comparison has noise of its own, so one score alone has to stay within the price."""
        return _OneScore()

    @property
    def compared_quantity_text(self) -> str:
        """Noisy counts, which are never shown."""
        return (
            "numbers of right predictions on held-out private {unit}s, compared under Gumbel noise of scale "
            f"{text_with_all_digits(self.noise_scale)}"
        )


class _OneScore(Composition):
    """The cost of one point's score, whatever the number of points."""

    def _event_of_points(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The first point's event."""
        return super()._event_of_points(trials[:1])
