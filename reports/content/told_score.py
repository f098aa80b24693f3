"""What is told of a winner's score: an interval that covers the choice, and how the score that chose came about.

The best of many scores is partly luck, so the score of a winner is not told as if it had been measured once. What is
told is an interval whose level is divided among all runs that may win: with probability 95 % it holds whichever run
wins. It holds for runs that depend on no other score on the same records, so a sweep that was planned after an earlier
one had scored these records has none.

A card is better: its numbers come from a sealed part of the account, which trained nothing and chose nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsweep.accounting.ledger.book import SpentOutside
from dpsweep.accounting.ledger.statement import card_charge, first_swept_plan, part_text
from dpsweep.accounting.records.card import SAME_ANSWER, CardAnswer, CardNumber
from dpsweep.accounting.searches.interface import is_scored_apart_from_search
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.reports.content.formatting import ACCURACY, percent_interval_text, percent_text
from dpsweep.reports.content.score_scale import ScoreScale
from dpsweep.reports.content.sweep_table import NEXT_TOKEN_ACCURACY, SHARE_OF_RIGHT_LABELS, Sweep
from dpsweep.reports.statistics.point_scores import PointScore

REUSED = "Best scores are partly luck, and since an earlier sweep saw these records no error bar is honest here."
LUCK = "Best scores are partly luck."
WITHOUT_CLASSES = (NEXT_TOKEN_ACCURACY, SHARE_OF_RIGHT_LABELS)
"""The names of scores of models that say more than one class of a record."""
OUTSIDE = "The interval assumes that no work outside dpsweep, whose cost the account records, led to this search."
USED = "score on records that an earlier sweep had scored"
UNKNOWN = "No interval that covers the choice is known for this kind of score."


@dataclass(frozen=True, kw_only=True)
class ToldScore:
    """What is told of a run that was chosen, and the ends of the interval that covers the choice, all in [0, 1].

    `value` is the run's own score, or the card's number if there is a `card_part`, whose units chose nothing. `low` and
    `high` are the ends of its interval, None if nothing covers the choice; `refusal` then says why, and else what the
    interval assumes. `point` is the score of its point, which chose, None if it may not be shown, and `chosen_among`
    says what it was chosen among, also if the choice was that of the whole plan; it is empty if nothing was chosen.
    `also` has further numbers, by label; `scale` says scores.
    """

    value: float
    low: float | None
    high: float | None
    refusal: str
    point: PointScore | None
    chosen_among: str
    also: Mapping[str, CardNumber]
    scale: ScoreScale
    card_part: str = ""

    @property
    def runs(self) -> int:
        """The number of runs whose scores chose together."""
        return 1 if self.point is None else self.point.runs

    @property
    def interval_text(self) -> str:
        """The interval with its unit; empty if there is none."""
        if self.low is None or self.high is None:
            return ""
        return self.scale.with_unit(self.scale.interval_text(self.low, self.high))

    @property
    def numbers(self) -> tuple[float | None, float | None, float | None]:
        """The value and the ends of its interval as other programs read them, the smaller end first.

        The value is None for an error that noise drove below 0.
        """
        return self.scale.exported_number(self.value), *self.scale.ends(self.low, self.high)

    def text_of_further_number(self, number: CardNumber) -> str:
        """The interval of one of `also`, with its unit."""
        if number.in_target_unit and self.scale.loss is not None:
            return self.scale.with_unit(self.scale.text_of_numbers(number.low, number.high))
        return f"{percent_interval_text(number.low, number.high)} %"

    @property
    def confidence_text(self) -> str:
        """How sure the interval is."""
        if self.card_part:
            return f"95 %, on {self.card_part}"
        of = " of the run that is handed over" if self.runs > 1 else ""
        return f"95 % interval{of}, with the choice of the winner allowed for" if self.chosen_among else "95 %"

    @property
    def basis_text(self) -> str:
        """What the value is, in words that follow its name; empty for a score that was not chosen."""
        if self.card_part:
            return f"on {self.card_part}"
        if self.runs > 1:
            return f"one run of a point with the {self.chosen_among}"
        return f"the {self.chosen_among}" if self.chosen_among else ""

    def interval_sentence(self, label: str) -> str:
        """What is told of the score with this label; empty if there is no interval."""
        given = f"The {label} of the winner is {self.interval_text} ({self.confidence_text})."
        return given if self.interval_text else ""

    @property
    def score_sentence(self) -> str:
        """The score that chose, called what it is."""
        if self.point is None:
            return self.refusal
        what = f"is the {self.chosen_among}" if self.chosen_among else "was measured"
        luck = LUCK if self.chosen_among and self.refusal != REUSED else ""
        score = f"{self.scale.with_unit(self.scale.text(self.point.value))} {what}."
        own = self.scale.with_unit(self.scale.text(self.point.own))
        own = f"The run whose model is handed over has {own}." if self.runs > 1 else ""
        return " ".join(filter(None, (score, own, luck, self.refusal)))


def card_part_text(sweep: Sweep) -> str:
    """The part of the records that the sweep's card reads, in words; empty without a card."""
    charge = card_charge(sweep.account.attempts_of_plan(sweep.plan_id))
    return "" if charge is None else part_text(charge, sweep.plan.unit)


def decision_text(card: CardAnswer) -> str:
    """How the model of a card decides between two classes; empty where the more likely one is said."""
    if card.threshold is None:
        return ""
    return f"the model predicts the positive class at a probability of {100 * card.threshold:.3g} % or more"


def told_score_of_run(sweep: Sweep, trial: str) -> ToldScore | None:
    """What may be told of a run's score if the run was chosen; None if it has no score."""
    result = sweep.results_by_trial.get(trial)
    score = None if result is None else result.score
    reused = _has_earlier_sweep_on_account(sweep)
    final, run = trial in set(sweep.final["trial"]), sweep.trial_with_id(trial)
    among = "" if is_scored_apart_from_search(sweep.plan, run) else sweep.shown.chosen_among
    point = sweep.point_score(trial) if Disclosure.WINNER_SCORE in sweep.rule.discloses else None
    runs = 1 if point is None else point.runs
    kind = f"{sweep.rule.name_of_point_score} score of its {runs} runs, chosen" if runs > 1 else "score chosen"
    chosen_among = _what_score_is(among, kind, is_final=final) or (USED if reused else "")
    if sweep.card is not None and trial == sweep.winner_id:
        first, *others = sweep.card.numbers
        part = card_part_text(sweep)
        return ToldScore(
            value=first.value,
            low=first.low,
            high=first.high,
            refusal="",
            point=point,
            chosen_among=chosen_among,
            also={
                one.label: one
                for one in others
                if (one.label, sweep.metric) != (SAME_ANSWER, ACCURACY) and one.label != sweep.score_label
            },
            scale=sweep.score_scale,
            card_part=part and "; ".join(filter(None, (part, decision_text(sweep.card)))),
        )
    if score is None:
        return None
    interval = None if reused else _interval_covering_choice(score)
    has_outside_cost = any(entry.kind == SpentOutside.kind for entry in sweep.account.entries)
    return ToldScore(
        value=float(score["value"]),
        low=None if interval is None else interval[0],
        high=None if interval is None else interval[1],
        refusal=REUSED if reused else UNKNOWN if interval is None else OUTSIDE * has_outside_cost,
        point=point,
        chosen_among=chosen_among,
        also={
            name: CardNumber(label=name, value=float(other["value"]), low=both[0], high=both[1])
            for name, other in score.get("also", {}).items()
            if not reused and (both := _interval_covering_choice(other)) is not None
        },
        scale=sweep.score_scale,
    )


def same_answer_interval(sweep: Sweep) -> tuple[float, float] | None:
    """Between which scores always giving the same answer is by the sweep's metric; None where it is not known."""
    known = None if sweep.card is None or sweep.metric != ACCURACY else sweep.card.number_with_label(SAME_ANSWER)
    if known is not None:
        return known.low, known.high
    classes = _number_of_classes(sweep)
    if classes is None or sweep.metric in (ACCURACY, "f1"):
        return None
    share = {"balanced_accuracy": 1 / classes, "auroc": 0.5}.get(sweep.metric, 1.0)
    return share, share


def same_answer_sentence(sweep: Sweep) -> str:
    """What always giving the same answer reaches by the sweep's metric; empty where answers are no classes."""
    if (known := same_answer_interval(sweep)) is not None:
        text = percent_text(known[0]) if known[0] == known[1] else percent_interval_text(*known)
        return f"A model that always gives the same answer reaches {text} %."
    if (classes := _number_of_classes(sweep)) is None:
        return ""
    return (
        "The score of a model that always gives the same answer depends on the sizes of the classes, which these "
        f"scores do not tell. With score.metric=balanced_accuracy that score is 1 in {classes}."
    )


def _number_of_classes(sweep: Sweep) -> int | None:
    """The number of classes; None where answers are no classes."""
    classes = sweep.plan.trials[0].config.get("dataset", {}).get("classes")
    known = isinstance(classes, int) and classes >= 2 and sweep.score_label not in WITHOUT_CLASSES
    return classes if known else None


def _interval_covering_choice(score: Mapping[str, Any]) -> tuple[float, float] | None:
    told = score.get("told")
    return None if told is None else (float(told["low"]), float(told["high"]))


def _has_earlier_sweep_on_account(sweep: Sweep) -> bool:
    """Whether another plan was charged to the account before this one: its scores may have shaped this plan."""
    return first_swept_plan(sweep.account) != sweep.plan_id


def _what_score_is(among: str, kind: str, *, is_final: bool) -> str:
    """What the score is, in words that follow "is the"; empty if there was no choice."""
    if not among:
        return ""
    return f"score of a final run of the point chosen among {among}" if is_final else f"{kind} among {among}"
