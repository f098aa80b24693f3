"""The sealed parts and the card of a sweep: what the user asks for, what the account has, and what is possible.

An account's parts are those of its first charge, whatever a later command says. `auto` asks for parts where declared
sizes make them useful.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.book import Statement, sealed_charges
from dpsweep.accounting.ledger.sealed_parts import SealedCharge, SealedParts, number_of_fresh_part
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.card import SEALED, sealed_charge_of_config
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.selection.interface import Disclosure, SelectionRule
from dpsweep.accounting.stored_names.stored_classes import KIND
from dpsweep.sweeper.planning.grid import UNSCORED
from dpsweep.sweeper.planning.plan_settings import PlanSettings, Point
from dpsweep.sweeper.trial.spec import build_object_of_config_part, dataset_from_config, records_from_config
from dpsweep.trainers.data.interface import nominal_units
from dpsweep.trainers.declarations.cards import THRESHOLDED, LogOddsDetails, details_of_card
from dpsweep.trainers.declarations.metrics import Auroc
from dpsweep.trainers.methods.script import is_script_config

AUTO = "auto"
LEAST_THRESHOLD = 0.001
"""The least and, from 1, the largest threshold: bins of the log-odds reach about so far."""

LEAST = 150
"""The fewest declared units of a useful part: a share of .9 of so many is known within 5 points or more."""

AUTO_SHARE, AUTO_SHARE_OF_PUBLIC, AUTO_PARTS = 0.1, 0.5, 2
"""What `auto` sets aside: nothing trains on a public set, so half of it may be."""

NO_PART_LEFT = "No sealed part is left, so this sweep has no card."
OTHER_RECORDS = (
    "The records are prepared otherwise than at the account's first charge, or its units may have been read elsewhere, "
    "so its sealed parts are of no use any more: this sweep has no card, and no later one has."
)


@dataclass(frozen=True, kw_only=True)
class SealedTerms:
    """The sealed parts that all runs leave out, None for none; whether the sweep has a card; a note for the user.

    `threshold` is the one by which the card decides between two classes, or the metric that chooses it.
    """

    parts: SealedParts | None = None
    card: bool = False
    threshold: float | str | None = None
    note: str = ""

    def with_parts_left_out(self, points: Sequence[Point]) -> Sequence[Point]:
        """The points, whose runs leave the parts out."""
        form = {} if self.parts is None else {SEALED: self.parts.to_json()}
        return [point.with_settings(**form) for point in points]


@dataclass(frozen=True)
class AccountParts:
    """The sealed parts of an account: what each charge says of them, None for a charge that says nothing."""

    charges: Sequence[SealedCharge | None] = ()

    def terms_of_sweep(self, settings: PlanSettings, points: Sequence[Point]) -> SealedTerms:
        """The terms of a sweep of these points on the account.

        Raises `BadInput` for parts other than the account's, for parts that are too small, and for a card that is asked
        for where there is none.
        """
        if not points:
            return SealedTerms()
        earlier = self.charges
        threshold = _asked_threshold(settings.card)
        config = points[0].config
        asked = _asked_parts(settings.sealed, config)
        first = earlier[0] if earlier else None
        parts = asked if not earlier else None if first is None else first.parts
        if earlier and settings.sealed not in (None, AUTO) and asked != parts:
            raise BadInput(
                f"Expected budget.sealed={settings.sealed} to be left out: {settings.account} "
                + ("set nothing aside" if parts is None else f"set {parts.share} in {parts.parts} parts aside")
                + " at its first charge, and that never changes."
            )
        small = settings.sealed == AUTO and not earlier and parts is None
        terms = SealedTerms(parts=parts, note=_too_few_units_sentence(config) if small else "")
        if settings.card is False:
            return terms
        why = _why_no_card(terms, points, earlier)
        if settings.card != AUTO and why:
            asked_card = "true" if settings.card is True else settings.card
            raise BadInput(f"Expected plan.card={asked_card} to have a sealed part. {why}")
        if threshold is not None:
            _require_two_classes(threshold, points)
        return replace(terms, card=not why, threshold=threshold, note=why if parts is not None else terms.note)


def compose_plan_with_unread_part(
    compose: Callable[[AccountParts], PricedPlan], statement: Statement | None
) -> PricedPlan:
    """The plan that `compose` makes, by what the charges of its account say of sealed parts; None is a new account.

    The plan of a command that was charged before is the same one again, also if its card has taken the last part: so
    first comes the plan as it would be if no part had answered.
    """
    charges = () if statement is None else sealed_charges(statement.entries)
    if statement is None or not charges or charges[0] is None:
        return compose(AccountParts(charges))
    priced = compose(AccountParts((replace(charges[0], card=None),)))
    asked = priced.plan.sealed_charge
    if (
        priced.plan.card is None
        or asked is None
        or statement.attempts_of_plan(priced.plan.id).charges
        or number_of_fresh_part(charges, asked) is not None
    ):
        return priced
    return compose(AccountParts(charges))


def _asked_threshold(card: object) -> float | str | None:
    """The threshold of `plan.card={threshold: ...}`; None where it is a word."""
    if card == AUTO or isinstance(card, bool):
        return None
    if not isinstance(card, Mapping) or card.keys() != {"threshold"}:
        raise BadInput(
            f"Expected plan.card={card!r} to be {AUTO}, true, false or {{threshold: ...}}, a probability of the "
            f"positive class or {' or '.join(THRESHOLDED)}."
        )
    threshold = card["threshold"]
    if isinstance(threshold, float) and LEAST_THRESHOLD <= threshold <= 1 - LEAST_THRESHOLD:
        return threshold
    if threshold in THRESHOLDED:
        return str(threshold)
    raise BadInput(
        f"Expected plan.card.threshold={threshold!r} to be a probability from {LEAST_THRESHOLD} to "
        f"{1 - LEAST_THRESHOLD}, or {' or '.join(THRESHOLDED)}."
    )


def _require_two_classes(threshold: float | str, points: Sequence[Point]) -> None:
    """Raises `BadInput` unless the points have two classes, and the table that a metric's threshold follows from."""
    name = f"plan.card.threshold={threshold}"
    for point in points:
        loss, score = (build_object_of_config_part(point.config[part], part) for part in ("loss", "score"))
        if not isinstance(details_of_card(loss, score, dataset_from_config(point.config).classes), LogOddsDetails):
            raise BadInput(f"Expected {name} to be left out: it decides between two classes.")
        if isinstance(threshold, str) and score.metric != Auroc.label.lower():
            raise BadInput(
                f"Expected {name} to be a number, or score.metric=auroc: it follows from the table of that score."
            )


def require_table_for_threshold(threshold: float | str | None, rule: SelectionRule, trials: Sequence[Trial]) -> None:
    """Raises `BadInput` if a threshold follows from a table that the rule does not release."""
    if not isinstance(threshold, str):
        return
    runs = [trial.final or trial for trial in trials]
    if Disclosure.WINNER_SCORE not in rule.discloses or any(run.config["score"].get(KIND) == UNSCORED for run in runs):
        raise BadInput(
            f"Expected plan.card.threshold={threshold} to be a number under {rule.name}: no table of the model "
            "that is handed over is released."
        )


def _why_no_card(terms: SealedTerms, points: Sequence[Point], earlier: Sequence[SealedCharge | None]) -> str:
    """Why a sweep cannot have a card; empty if it can."""
    if terms.parts is None:
        return "The account has set no part aside; budget.sealed says it at the first charge."
    if any(is_script_config(point.config) for point in points):
        return "A model that a script makes is not known to dpsweep, so it cannot be asked."
    asked = sealed_charge_of_config(terms.with_parts_left_out(points[:1])[0].config, with_card=True)
    assert asked is not None
    if not all(asked.is_cut_alike(one) for one in earlier):
        return OTHER_RECORDS
    return "" if number_of_fresh_part(earlier, asked) is not None else NO_PART_LEFT


def is_auto_useful(config: Mapping[str, Any]) -> bool:
    """Whether `budget.sealed=auto` would set something aside for runs that set nothing aside yet."""
    return SEALED not in config and _asked_parts(AUTO, config) is not None


def _too_few_units_sentence(config: Mapping[str, Any]) -> str:
    """Why `auto` sets nothing aside, and how many units it needs."""
    units, share, of = _units_and_share_of_auto(config)
    needed = math.ceil(LEAST * AUTO_PARTS / share)
    return (
        f"budget.sealed={AUTO} sets nothing aside: {AUTO_PARTS} parts of together {share:.0%} need {needed} declared "
        f"{of}, {LEAST} for each part, and there are {units}. So there is no card."
    )


def _units_and_share_of_auto(config: Mapping[str, Any]) -> tuple[int, float, str]:
    """The declared units that parts are cut from, the share of them that `auto` takes, and their noun."""
    records = records_from_config(config)
    if records.score.reads == "test":
        return records.dataset.test_records, AUTO_SHARE_OF_PUBLIC, "test records"
    return nominal_units(records.dataset), AUTO_SHARE, f"{records.dataset.unit}s"


def _asked_parts(sealed: object, config: Mapping[str, Any]) -> SealedParts | None:
    """The parts that the settings ask a new account to set aside; None for none."""
    if sealed is None:
        return None
    units, share, of = _units_and_share_of_auto(config)
    public = of == "test records"
    if sealed == AUTO:
        parts = SealedParts(share=share, parts=AUTO_PARTS, public=public)
        return parts if units * share / AUTO_PARTS >= LEAST else None
    if not isinstance(sealed, Mapping):
        share = sealed if isinstance(sealed, float) and 0 < sealed < 1 else AUTO_SHARE
        raise BadInput(f"Write 'budget.sealed={{share: {share}, parts: {AUTO_PARTS}}}', or {AUTO}.")
    try:
        parts = replace(SealedParts(**sealed), public=public)
    except (TypeError, ValueError) as cause:
        raise BadInput(
            f"Expected budget.sealed={sealed!r} to be null, {AUTO}, or a share and a number of parts: {cause}."
        ) from None
    if (each := units * parts.share / parts.parts) < LEAST:
        raise BadInput(
            f"Expected budget.sealed={dict(sealed)} to leave each part {LEAST} units or more: of {units} declared "
            f"ones it would have about {each:.0f}."
        )
    return parts
