"""How wide the interval of a score will be, from declared sizes alone: said with the price, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.book import Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import first_swept_plan
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.searches.interface import SURE, level_of_told_interval
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.reports.content.score_scale import score_scale_of_config
from dpsweep.sweeper.coordinator.request import SweepRequest
from dpsweep.sweeper.planning.sealed_options import is_auto_useful
from dpsweep.sweeper.trial.spec import declaration_from_config
from dpsweep.trainers.data.interface import nominal_units
from dpsweep.trainers.declarations.metrics import Auroc

SHARE = 0.9
"""The score at which widths are stated."""

WIDE = 0.1
"""Half a width above which little can be told."""

USELESS = 0.001
"""What an interval that is as wide as the scale may lack."""


Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ScoreWidth:
    """The intervals that will be told of the winner's score and of another run's, at a score of `SHARE`; None for none.

    `trial` is a run like the winner, `part` the sealed part that the winner is scored on, in words, and `shares` the
    declared shares of the classes, empty for equal ones.
    """

    trial: Trial
    winner: Interval | None
    run: Interval | None
    part: str = ""
    shares: tuple[float, ...] = ()
    used: bool = False

    @property
    def is_useless(self) -> bool:
        """Whether there are intervals, and all of them are as wide as the scale."""
        known = [one for one in (self.winner, self.run) if one is not None]
        return bool(known) and all(high - low > 1 - USELESS for low, high in known)

    def remedies_sentence(self, *more: str) -> str:
        """What would make the intervals narrower."""
        *ways, last = ("More scored records", "fewer points", score_scale_of_config(self.trial.config).narrower, *more)
        return f"{', '.join(ways)} or {last} would tell more."

    @property
    def text(self) -> str:
        """How well the scores will be known; empty if nothing is told."""
        scale = score_scale_of_config(self.trial.config)
        bars = []
        if self.winner is not None:
            bars.append(f"winner \N{PLUS-MINUS SIGN}{scale.within_text(*self.winner)}{self.part}")
        if self.run is not None:
            bars.append(f"any other run \N{PLUS-MINUS SIGN}{scale.within_text(*self.run).removesuffix(' points')}")
        sizes = "of the declared sizes" if self.shares else "of equal size"
        sizes = "" if declaration_from_config(self.trial.config).score.measured is None else f", if classes are {sizes}"
        at = f"Expected error bars at {scale.assumed_text(SHARE)}{sizes}: {', '.join(bars)}."
        return " ".join(filter(None, (at if bars else "", NO_ERROR_BAR if self.used else "")))


def score_width_of_plan(
    priced: PricedPlan, statement: Statement | None, shares: tuple[float, ...] = ()
) -> ScoreWidth | None:
    """How well the winner's score and a cell of the map will be known; None if nothing is told.

    Classes have the declared `shares`, or are taken to be of equal size, since their sizes are private. `statement` has
    all entries of the account, None before it is opened.
    """
    plan, discloses = priced.plan, priced.rule.discloses
    told_run = plan.trials[0] if plan.card is not None else plan.runs_that_may_be_handed_over[0]
    shows_all = Disclosure.ALL_SCORES in discloses
    if plan.card is not None:
        known = _interval_and_part_of_card(priced, shares)
        run = _interval_of_score(told_run, SURE, shares) if shows_all else None
        return None if known is None else ScoreWidth(trial=told_run, winner=known[0], run=run, part=known[1])
    if Disclosure.WINNER_SCORE not in discloses:
        return None
    try:
        level = level_of_told_interval(plan, told_run)
    except BadInput:
        return None  # a plan that is only priced
    told = _interval_of_score(told_run, level, shares)
    if told is None:
        return None
    used = statement is not None and first_swept_plan(statement) not in (None, plan.id)
    run = _interval_of_score(told_run, SURE, shares) if shows_all and level < SURE else None
    return ScoreWidth(trial=told_run, winner=None if used else told, run=run, shares=shares, used=used)


def priced_with_anyway_note(priced: PricedPlan) -> PricedPlan:
    """The plan with a note that `--anyway` was given, which is no part of its identity."""
    note = "This search was asked for with --anyway: also if every interval of its scores is as wide as the scale."
    return replace(priced, plan=replace(priced.plan, notes=(*priced.plan.notes, note)))


def refuse_useless_scores(priced: PricedPlan, ledger: Ledger, request: SweepRequest) -> None:
    """Raises `BadInput` if no score of a plan that is not charged yet would say anything, but for `--anyway`."""
    plan, statement = priced.plan, ledger.statement_or_none(priced.plan.account)
    charged = statement is not None and any(entry.plan == plan.id for entry in statement.charges)
    if request.anyway or charged or plan.has_public_data:
        return
    width = score_width_of_plan(priced, statement, request.class_shares)
    if width is not None and width.is_useless:
        raise BadInput(
            "Expected scores that say something; every interval of this search's would be as wide as the scale. "
            f"{width.remedies_sentence()} --anyway charges and runs this one."
        )


def score_width_text(priced: PricedPlan, statement: Statement | None, shares: tuple[float, ...] = ()) -> str | None:
    """The sentences of a plan on how well its scores will be known; None if nothing is told."""
    width = score_width_of_plan(priced, statement, shares)
    if width is None:
        return None
    if width.is_useless:
        return f"{width.text} {USELESS_SCORES} {width.remedies_sentence()}"
    sealable = statement is None and is_auto_useful(width.trial.config)
    low, high = width.winner or width.run or (0.0, 0.0)
    more = width.remedies_sentence(*["budget.sealed=auto"] * sealable)
    return f"{width.text} {more}" if (high - low) / 2 > WIDE and not width.part else width.text


USELESS_SCORES = "Every interval is as wide as the scale, so no score of this search would say anything."
NO_ERROR_BAR = (
    "The winner will have no error bar: an earlier sweep used the same held-out records (on a new account, "
    "budget.sealed= keeps some fresh)."
)


def _class_sizes(classes: int, units: int, shares: tuple[float, ...]) -> tuple[float, ...]:
    """The number of units of each class; `shares` are the declared ones."""
    if not shares:
        return (units / classes,) * classes
    if len(shares) != classes:
        raise BadInput(f"Expected plan.class_shares={list(shares)} to have a share for each of {classes} classes.")
    return tuple(units * share for share in shares)


def _interval_of_score(trial: Trial, level: float, shares: tuple[float, ...]) -> Interval | None:
    """The interval of a run's score at this level; None if the sizes do not tell it."""
    declared = declaration_from_config(trial.config)
    sizes = _class_sizes(declared.dataset.classes, declared.records.nominal_scored_units, shares)
    counts = declared.score.likely_counts(sizes, SHARE)
    if counts is None:
        return None
    intervals = declared.score.intervals_at_level(counts, level, whole_units=declared.counts_whole_units)
    return next(iter(intervals.values()), (0.0, 1.0))


def _interval_and_part_of_card(priced: PricedPlan, shares: tuple[float, ...]) -> tuple[Interval, str] | None:
    """How well the card will tell the score of the winner, and the part that it reads, in words."""
    from dpsweep.trainers.declarations.cards import Reading, details_of_card, number_of_tables, numbers_of_card

    card, trial = priced.plan.card, priced.plan.trials[0]
    declared = declaration_from_config(trial.config)
    sealed = declared.records.sealed
    if card is None or sealed is None:
        return None
    loss, score, classes = declared.loss, declared.score, declared.dataset.classes
    of = declared.dataset.test_records if sealed.public else nominal_units(declared.dataset)
    units, details = round(of * sealed.share / sealed.parts), details_of_card(loss, score, classes)
    reading = Reading(
        std=card.noise_std_of_counts(number_of_tables(details)), level=SURE, whole_units=declared.counts_whole_units
    )
    table: tuple[float, ...] = ()
    if details is not None:
        sizes = _class_sizes(classes, units, shares)
        table = (score if isinstance(score.measured, Auroc) else details).likely_counts(sizes, SHARE) or ()
    told = numbers_of_card((units * SHARE, units * (1 - SHARE), *table), loss, score, details, reading)[0]
    part = f", on a sealed part of about {units} {'test records' if sealed.public else f'{priced.plan.unit}s'}"
    return (told.low, told.high), part
