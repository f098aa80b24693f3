"""How wide the interval of a score will be, from declared sizes alone: said with the price, before anything runs."""

from __future__ import annotations

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.searches.interface import SURE, level_of_told_interval
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.reports.content.score_scale import score_scale_of_config
from dpsweep.sweeper.trial.spec import declaration_from_config
from dpsweep.trainers.data.interface import nominal_units
from dpsweep.trainers.declarations.metrics import Auroc

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
    if plan.card is not None:
        return _width_of_card_text(priced)
    told_run = plan.runs_that_may_be_handed_over[0]
    if Disclosure.WINNER_SCORE not in discloses:
        return None
    try:
        level = level_of_told_interval(plan, told_run)
    except BadInput:
        return None  # a plan that is only priced
    told, scale = _interval_of_score(told_run, level), score_scale_of_config(told_run.config)
    if told is None:
        return None
    cell = _width_of_run_text(priced, told_run) if level < SURE else ""
    used = statement is not None and not statement.charges and any(statement.reserved_epsilon_and_delta)
    winner = "" if used else f"winner \N{PLUS-MINUS SIGN}{scale.within_text(*told)}"
    bars = f"{_assumption_text(told_run)}: {', '.join(filter(None, (winner, cell)))}." if winner or cell else ""
    more = f"More scored records, fewer points, {scale.narrower}"
    more += " or budget.sealed=auto" if statement is None else ""
    wide = f"{more} would tell more." if (told[1] - told[0]) / 2 > WIDE else ""
    return " ".join(filter(None, (bars, NO_ERROR_BAR if used else "", wide)))


NO_ERROR_BAR = (
    "The winner will have no error bar: an earlier sweep used the same held-out records (on a new account, "
    "budget.sealed= keeps some fresh)."
)


def _assumption_text(trial: Trial) -> str:
    """The score at which widths are stated; a metric other than accuracy is known less well where a class is rare."""
    sizes = "" if declaration_from_config(trial.config).score.measured is None else ", if classes are of equal size"
    return f"Expected error bars at {score_scale_of_config(trial.config).assumed_text(SHARE)}{sizes}"


def _interval_of_score(trial: Trial, level: float) -> tuple[float, float] | None:
    """The interval of a run's score at this level; None if the sizes do not tell it."""
    declared = declaration_from_config(trial.config)
    counts = declared.score.likely_counts(declared.dataset.classes, declared.records.nominal_scored_units, SHARE)
    if counts is None:
        return None
    intervals = declared.score.intervals_at_level(counts, level, whole_units=declared.counts_whole_units)
    return next(iter(intervals.values()), (0.0, 1.0))


def _width_of_run_text(priced: PricedPlan, trial: Trial) -> str:
    """How well a single run of the search is known; empty if no single one is shown."""
    known = _interval_of_score(trial, SURE) if Disclosure.ALL_SCORES in priced.rule.discloses else None
    if known is None:
        return ""
    within = score_scale_of_config(trial.config).within_text(*known).removesuffix(" points")
    return f"any other run \N{PLUS-MINUS SIGN}{within}"


def _width_of_card_text(priced: PricedPlan) -> str | None:
    """How well the card will tell the score of the winner; None for an area, whose width the sizes do not tell."""
    from dpsweep.trainers.declarations.cards import Reading, details_of_card, number_of_tables, numbers_of_card

    card, trial = priced.plan.card, priced.plan.trials[0]
    declared = declaration_from_config(trial.config)
    sealed = declared.records.sealed
    if card is None or sealed is None or declared.score.metric == Auroc.label.lower():
        return None
    loss, score, classes = declared.loss, declared.score, declared.dataset.classes
    of = declared.dataset.test_records if sealed.public else nominal_units(declared.dataset)
    units, details = round(of * sealed.share / sealed.parts), details_of_card(loss, score, classes)
    reading = Reading(
        std=card.noise_std_of_counts(number_of_tables(details)), level=SURE, whole_units=declared.counts_whole_units
    )
    table = () if details is None else details.likely_counts(classes, units, SHARE)
    scale = score_scale_of_config(trial.config)
    told = numbers_of_card((units * SHARE, units * (1 - SHARE), *table), loss, score, details, reading)[0]
    part = f"on a sealed part of about {units} {'test records' if sealed.public else f'{priced.plan.unit}s'}"
    winner = f"winner \N{PLUS-MINUS SIGN}{scale.within_text(told.low, told.high)}, {part}"
    return f"{_assumption_text(trial)}: {', '.join(filter(None, (winner, _width_of_run_text(priced, trial))))}."
