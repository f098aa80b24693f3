"""How wide the interval of a score will be, from declared sizes alone: said with the price, before anything runs."""

from __future__ import annotations

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.searches.interface import SURE, is_scored_apart_from_search, level_of_told_interval
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.sweeper.trial.spec import (
    declaration_from_config,
    nominal_scored_units,
    part_of_records_from_config,
)

SHARE = 0.9
"""The score at which widths are stated."""

WIDE = 0.1
"""Half a width above which little can be told."""


def score_width_text(priced: PricedPlan, statement: Statement | None) -> str | None:
    """How well the winner's score and a cell of the map will be known at a score of `SHARE`; None if nothing is told.

    Classes are taken to be of equal size, since their sizes are private. `statement` has the entries of this plan
    alone, so an account that has reserved something without one has had an earlier sweep.
    """
    plan, discloses = priced.plan, priced.rule.discloses
    told_run = (*plan.final_runs, *plan.trials)[0]
    declared = declaration_from_config(told_run.config)
    units = nominal_scored_units(declared, part_of_records_from_config(told_run.config))
    counts = declared.score.likely_counts(declared.dataset.classes, units, SHARE)
    if counts is None or Disclosure.WINNER_SCORE not in discloses:
        return None
    try:
        level = level_of_told_interval(plan, told_run)
    except BadInput:
        return None  # a plan that is only priced

    def half_width(level: float) -> float:
        intervals = declared.score.intervals_at_level(counts, level, whole_units=declared.counts_whole_units)
        low, high = next(iter(intervals.values()), (0.0, 1.0))
        return (high - low) / 2

    told = half_width(level)
    cell = f"; a run {100 * half_width(SURE):.1f}" if Disclosure.ALL_SCORES in discloses and level < SURE else ""
    apart = is_scored_apart_from_search(plan, told_run)
    winner = f"winner within {100 * told:.1f} points{'' if apart else ', whichever wins'}"
    if statement is not None and not statement.charges and any(statement.reserved_epsilon_and_delta):
        winner = "no interval for the winner, since an earlier sweep of this account has scored these records"
    wide = "; more scored records, fewer points or another metric would tell more" if told > WIDE else ""
    return f"at {SHARE:.0%}: {winner}{cell}{wide}"
