"""Plan to charge, or refusal: what is still to be run, and that it is paid for before any of it is.

An attempt is *finished* when its result file says so, *killed* when the ledger says that it started and no result file
says how it ended, also when somebody deleted the folder. Finished attempts are neither run nor charged again; points
that never started run on the charge they have; killed ones are a new charge, or are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from accounting import events
from accounting.errors import BadInput, BudgetRefused
from accounting.ledger import Ledger, Statement, refusal
from accounting.plan import Plan, Trial
from accounting.price import Quote
from accounting.result import Status, TrialResult
from sweeper.advice import advice
from sweeper.compose import PricedPlan
from sweeper.folder import SweepFolder


class Retry(StrEnum):
    """Which attempts a repeated command pays for again."""

    KILLED = "killed"
    FAILED = "failed"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The trials of a plan by what became of them."""

    finished: tuple[Trial, ...]
    failed: tuple[Trial, ...]
    killed: tuple[Trial, ...]
    fresh: tuple[Trial, ...]


def standing(plan: Plan, folder: SweepFolder, statement: Statement) -> Standing:
    """Where each trial stands, by the ledger first and the result files second."""
    sorted_: dict[str, list[Trial]] = {"finished": [], "failed": [], "killed": [], "fresh": []}
    for trial in plan.trials:
        started = statement.started(plan.id, trial.id)
        result = TrialResult.read(folder.trial(trial.id)) if started else None
        sorted_[_kind(started, result)].append(trial)
    return Standing(**{kind: tuple(trials) for kind, trials in sorted_.items()})


def _kind(started: int, result: TrialResult | None) -> str:
    if not started:
        return "fresh"
    if result is None or result.attempt != started:
        return "killed"
    return "failed" if result.status is Status.FAILED else "finished"


def admit(priced: PricedPlan, ledger: Ledger, folder: SweepFolder, retry: Retry) -> tuple[Trial, ...]:
    """Charges what is not yet charged and returns the points to run, or raises `BudgetRefused`.

    The first time, the whole plan is one charge; later, attempts to repeat are another one.
    """
    plan = priced.plan
    statement = ledger.open(plan.account, plan.budget)
    _refuse_strangers(plan, folder, statement)
    if not any(entry.plan == plan.id for entry in statement.charges):
        charge(ledger, priced, plan.trials, priced.quote, "plan")
        return plan.trials
    where = standing(plan, folder, statement)
    again = {Retry.KILLED: where.killed, Retry.FAILED: where.killed + where.failed, Retry.NONE: ()}[retry]
    unpaid = [trial for trial in again if _uncovered(statement, plan, trial)]
    if unpaid:
        charge(ledger, priced, unpaid, quote_for(priced, unpaid), "repeat")
    return where.fresh + again


def _refuse_strangers(plan: Plan, folder: SweepFolder, statement: Statement) -> None:
    """Attempts that this ledger never started were charged elsewhere, or nowhere."""
    for trial in plan.trials:
        attempts = statement.started(plan.id, trial.id) + 1
        if (folder.trial(trial.id) / f"claim-{attempts}").exists():
            raise BadInput(
                f"Expected {folder.root} to hold no attempts but those of the ledger {statement.account} is kept in; "
                f"attempt {attempts} at trial {trial.id} is not in it. Use the ledger that it was run with "
                "(DPSWEEP_LEDGER), or another hydra.sweep.dir."
            )


def quote_for(priced: PricedPlan, trials: Sequence[Trial]) -> Quote:
    """The price of one more attempt at each of these trials."""
    event = priced.rule.event([trial.event for trial in trials])
    return priced.panel.quote(event, priced.plan.delta, priced.plan.adjacency, priced.plan.unit)


def _uncovered(statement: Statement, plan: Plan, trial: Trial) -> bool:
    return statement.started(plan.id, trial.id) >= statement.covered(plan.id, trial.id)


def charge(
    ledger: Ledger,
    priced: PricedPlan,
    trials: Sequence[Trial],
    quote: Quote,
    reason: str,
    names: Sequence[str] | None = None,
) -> None:
    """Takes the price of a search over these points out of the account, or says what would fit.

    `names` are what the ledger is to start one attempt at each of; None: the points.
    """
    plan = priced.plan
    try:
        ledger.charge(
            plan.account,
            plan=plan.id,
            trials=[trial.id for trial in trials] if names is None else names,
            cost=quote.guarantee,
            record=_record(priced, trials, quote, reason),
        )
    except BudgetRefused:
        statement = ledger.statement(plan.account)
        raise BudgetRefused(f"{refusal(statement, quote.guarantee)} {advice(priced, trials, statement)}") from None


def _record(priced: PricedPlan, trials: Sequence[Trial], quote: Quote, reason: str) -> Mapping[str, Any]:
    event = priced.rule.event([trial.event for trial in trials])
    return {
        "reason": reason,
        "rule": dict(priced.plan.rule) | {"name": priced.rule.name},
        "event": {name: events.to_json(part) for name, part in event.parts.items()},
        "claimed_by": quote.claimed_by,
        "bounds": dict(quote.bounds),
        "refusals": dict(quote.refusals),
        "parts": dict(quote.parts),
        "attack": quote.lower,
    }
