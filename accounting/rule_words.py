"""What is said of selection rules, and what people compare them by: nothing here prices or permits anything."""

from __future__ import annotations

import math
from collections.abc import Collection

from dpsweep.accounting import codec
from dpsweep.accounting.events.trial_counts import EachPoint
from dpsweep.accounting.events.types import PlanEvent, SelectionDpEvent
from dpsweep.accounting.notation import text_with_all_digits
from dpsweep.accounting.selection.interface import Disclosure, Proposals, Search, SelectionRule

ACCURACY = "accuracy"
"""The metric of a score that is a number of right predictions."""


WORKS = {
    "best_of_grid": ("koskela2024privacy",),
    "composition": ("mironov2017renyi",),
    "median of repeats": ("mironov2017renyi",),
    "noisy_max": ("mcsherry2007mechanism", "durfee2019practical"),
    "poisson_selection": ("papernot2022hyperparameter", "koskela2024privacy"),
    "private_selection": ("liu2019private", "papernot2022hyperparameter", "koskela2024privacy"),
    "public": ("mironov2017renyi",),
    "random_stopping": ("liu2019private",),
    "threshold": ("liu2019private",),
}
"""The keys of the works that a rule of ours leans on, by its name without a final run."""


def expected_tries(rule: SelectionRule, n_points: int) -> float:
    """The mean number of runs of a search over so many points."""
    event = rule.search_event(n_points)
    mean: float = n_points if event is None else event.tries.mean
    return mean


def chance_of_best(rule: SelectionRule, n_points: int, share: float) -> float:
    """The probability that some try is among the best `share` of the points, which are at least one point.

    A threshold is assumed to be the score that the best `share` reach.
    """
    from dpsweep.accounting.lower_bounds.selection_attack import chance_to_draw_best_share

    codec.positive_int("n_points", n_points)
    codec.share("share", share)
    event = rule.search_event(n_points)
    if event is None or isinstance(event.tries, EachPoint):
        return 1.0
    law = event.law_of_tries_with_limit if isinstance(event, SelectionDpEvent) else event.tries
    return chance_to_draw_best_share(law, max(1, math.ceil(share * n_points - 1e-9)) / n_points)


def tells_scores(rule: SelectionRule) -> bool:
    """Whether a winner's score may be shown; else counts of right predictions are compared under noise."""
    return Disclosure.WINNER_SCORE in rule.discloses


def event_of_run_alone(rule: SelectionRule, run: PlanEvent) -> PlanEvent:
    """What one run would cost if it were the whole search, and its score were told as this rule tells it."""
    return run if tells_scores(rule) else rule.event([run])


def refusal_of_scores(rule: SelectionRule, *, private: bool, metrics: Collection[str]) -> str:
    """Why the rule cannot choose by such scores, of private records or not; empty if it can."""
    if tells_scores(rule):
        return ""
    if not private:
        return f"Expected score=private under {rule.name}: tuning=composition shows public ones for this price."
    other = ", ".join(sorted({*metrics} - {ACCURACY}))
    return f"Expected score.metric={other} to be {ACCURACY} under {rule.name}, which compares counts." if other else ""


def compared_quantity_text(rule: SelectionRule) -> str | None:
    """What the runs are compared by, with `{unit}` to fill in, where no score is shown; None where one may be."""
    if tells_scores(rule):
        return None
    scale = text_with_all_digits(getattr(rule, "noise_scale", math.nan))
    return f"numbers of right predictions on held-out private {{unit}}s, compared under Gumbel noise of scale {scale}"


def charge_of_unequal_points_text(rule: SelectionRule, search: Search) -> str:
    """How points that differ in what they cost are charged, after the rule's name; `{phase}` narrows it.

    Empty where each run is charged what it costs: where all runs are known beforehand, and all are shown.
    """
    if search.proposals is Proposals.FIXED and not rule.hides_losers:
        return ""
    if rule.draws_in_secret and Disclosure.NUMBER_OF_TRIES not in rule.discloses:
        return "charges the mean of their deltas at each epsilon, as every try draws its point at random and names it"
    return "charges the worst{phase} at every order"
