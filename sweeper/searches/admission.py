"""Admission of a plan: charges it or refuses it, and determines the runs that are due. Every run is paid in advance.

An attempt is *finished* when its result file says so, *interrupted* when it may resume from a checkpoint, and *killed*
when the ledger says that it started and it can no longer end here, also if the folder was deleted, copied or restored.
Finished attempts are neither run nor charged again. Interrupted attempts resume, and points that never began run, on
the existing charge. Killed attempts take a spare attempt, are charged anew, or are refused.

At a launch the private store is checked against the ledger, and a new nonce voids earlier receipts. The order is

    reconcile -> admit -> announce the nonce in the store -> the nonce's line in the ledger -> confirm it in the store

and a crash at any of these steps leaves a store that agrees with the ledger, or a store that lets nothing resume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

from dpsweep.accounting.cautions import require_small_delta
from dpsweep.accounting.errors import BadInput, BudgetRefused
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.ledger.account import Attempts, Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import PrivateStore, new_nonce
from dpsweep.accounting.ledger.receipt import Receipt, void_claims
from dpsweep.accounting.notation import all_digits, epsilon_up
from dpsweep.accounting.pricing.alternatives import advice_on_repetition, advice_to_fit
from dpsweep.accounting.pricing.panel import Quote
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.remaining_budget import RemainingBudget
from dpsweep.accounting.printing import print_line
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.step_log import void_marks
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.rehearsal import WITHOUT_SPENDING, is_rehearsal
from dpsweep.accounting.searches.interface import PlannedSearch
from dpsweep.sweeper.job.attempt_state import AttemptState, AttemptStates, stage_of


class Retry(StrEnum):
    """Which attempts a repeated command pays for again."""

    KILLED = "killed"
    FAILED = "failed"
    ALL = "all"
    NONE = "none"


def attempt_states(search: PlannedSearch, attempts: Attempts) -> Iterator[tuple[Trial, AttemptState]]:
    """The state of each run's last attempt, from the ledger first and the files second."""
    folder = search.folder
    for trial in search.runs():
        started = attempts.started[trial.id]
        if not started:
            yield trial, AttemptState.FRESH
            continue
        ended = attempts.end_of(trial.id, started) is not None
        yield trial, stage_of(folder.place(trial.id), trial, started, ended=ended)


def charge_and_admit_runs(priced: PricedPlan, search: PlannedSearch, ledger: Ledger, retry: Retry) -> tuple[Trial, ...]:
    """Charges what is not charged yet and returns the runs that are due, or raises `BudgetRefused`.

    The first call charges the whole plan at once. Later calls charge the attempts to repeat, except those that spare
    attempts cover and those that were paid for and never began.
    """
    plan = priced.plan
    open_account(priced, ledger)
    attempts = ledger.statement(plan.account, plan.id).attempts(plan.id)
    _refuse_strangers(search, attempts)
    if retry is not Retry.ALL:
        _refuse_paid_results(priced, search, attempts)
    if not attempts.charges:
        ways, names, spares = partial(advice_to_fit, priced, plan.trials), search.paid_by_name, search.paid_without_name
        charge(ledger, priced, ways, plan.event, priced.quote, "plan", names, spares)
        return search.runs()
    where = AttemptStates.of(attempt_states(search, attempts))
    repeats = {
        Retry.KILLED: where.killed,
        Retry.FAILED: where.killed + where.failed,
        Retry.ALL: where.killed + where.failed + where.finished,
        Retry.NONE: (),
    }[retry]
    ended = where.killed + where.failed + where.finished
    paid = [trial for trial in ended if attempts.started[trial.id] < attempts.covered[trial.id]]
    again = tuple(trial for trial in ended if trial in repeats or trial in paid)
    unpaid = [trial for trial in again if trial not in paid]
    if beyond := unpaid[max(0, attempts.spares - search.reserved(attempts)) :]:
        event, quote = priced.repetition(beyond)
        if message := _repetition_notice(priced, ledger, event, quote, len(beyond)):
            print_line(message, flush=True)
        ways = partial(advice_on_repetition, priced, event)
        charge(ledger, priced, ways, event, quote, "repeat", [trial.id for trial in beyond])
    return where.fresh + where.interrupted + again


def is_over(search: PlannedSearch, attempts: Attempts) -> bool:
    """Whether every run of a charged plan has finished, so that nothing is run or charged unless all is repeated."""
    if not attempts.charges:
        return False
    states = [stage for _, stage in attempt_states(search, attempts)]
    return len(states) == search.total + bool(search.plan.finals) and set(states) == {AttemptState.FINISHED}


def open_account(priced: PricedPlan, ledger: Ledger) -> None:
    """Opens the account if it is new; a budget that the user gave must match the account's."""
    plan = priced.plan
    (ledger.use if priced.budget_given else ledger.find)(plan.account, plan.budget)


def require_accepted_delta(priced: PricedPlan) -> None:
    """Raises `BadInput` if delta is 1 / units or more and was not accepted; data declared public are exempt."""
    plan = priced.plan
    if not plan.public:
        require_small_delta(plan.delta, priced.units, plan.unit, priced.accept_delta)


def raised_since(priced: PricedPlan, statement: Statement) -> str:
    """A message if the user gave an earlier budget of the account; empty if the budget is the current one."""
    named, now = priced.plan.budget, statement.budget
    if not priced.budget_given or named not in statement.recorded_budgets or named == now:
        return ""
    budget = f"epsilon {all_digits(named.epsilon)}, delta {all_digits(named.delta)}"
    return (
        f"The budget of {statement.account} was raised to epsilon {all_digits(now.epsilon)}, delta "
        f"{all_digits(now.delta)} since; this command names {budget}. The account's budget counts."
    )


def _repetition_notice(priced: PricedPlan, ledger: Ledger, event: PlanEvent, quote: Quote, runs: int) -> str:
    """What repeated runs are about to be charged and leave; empty if they do not fit, or the data are public."""
    plan, statement = priced.plan, ledger.statement(priced.plan.account, priced.plan.id)
    if plan.public:
        return ""
    room = RemainingBudget.of(priced, statement)
    takes = room.balance.policy.takes(quote.guarantee, event)
    if not room.balance.admits(takes):
        return ""
    again, price = f"{runs} run{'s are' if runs != 1 else ' is'} repeated", epsilon_up(quote.epsilon)
    return f"{again}: this charges epsilon {price} more, and leaves {room.after(takes)} on {plan.account}."


def _refuse_strangers(search: PlannedSearch, attempts: Attempts) -> None:
    """Raises `BadInput` for attempts that this ledger never started: they were charged elsewhere or not at all."""
    plan, folder = search.plan, search.folder
    for trial in search.runs():
        attempt = attempts.started[trial.id] + 1
        if Receipt.claimed(folder.trial(trial.id), attempt):
            raise BadInput(
                f"Expected {folder.root} to hold no attempts but those of the ledger {plan.account} is kept in; "
                f"attempt {attempt} at trial {trial.id} is not in it. Use the ledger that it was run with "
                "(DPSWEEP_LEDGER), or another hydra.sweep.dir."
            )


def _refuse_paid_results(priced: PricedPlan, search: PlannedSearch, attempts: Attempts) -> None:
    """Raises `BadInput` if the folder has a finished, paid result and the ledger has a newer attempt at its trial."""
    folder, runs = search.folder, search.runs()
    for trial in runs:
        result, started = TrialResult.read(folder.trial(trial.id)), attempts.started[trial.id]
        if result is not None and result.attempt < started and result.status is Status.FINISHED:
            plan, (_, quote) = priced.plan, priced.repetition(runs)
            raise BadInput(
                f"Expected {folder.root} to be where the newest attempts of plan {plan.id} ran: it holds the result of "
                f"attempt {result.attempt} at trial {trial.id}, which is paid, and the ledger knows attempt {started}. "
                "Nothing was overwritten. `dpsweep report` shows this folder as it is; to go on with the newest "
                "attempts give another hydra.sweep.dir; --again repeats all of them here and charges epsilon "
                f"{epsilon_up(quote.epsilon)} more."
            )


def charge(
    ledger: Ledger,
    priced: PricedPlan,
    ways: Callable[[Statement], str],
    event: PlanEvent,
    quote: Quote,
    reason: str,
    names: Sequence[str],
    spares: int = 0,
) -> None:
    """Charges the account the price of `event`; a refusal says what would fit, by `ways` on the account.

    The charge pays for one attempt at each of `names`, and for `spares` attempts at any trial.
    Raises `BadInput` if delta is 1 / units or more and was not accepted.
    """
    plan = priced.plan
    require_accepted_delta(priced)
    try:
        ledger.charge(
            plan.account,
            plan=plan.id,
            trials=names,
            cost=quote.guarantee,
            record=_charge_record(priced, quote, reason),
            event=event,
            spares=spares,
        )
    except BudgetRefused:
        statement = ledger.statement(plan.account, plan.id)
        hint = "" if is_rehearsal(plan) else f" {WITHOUT_SPENDING}"
        refusal = statement.refusal(quote.guarantee)
        raise BudgetRefused(f"{refusal} {ways(statement)}{hint}") from None


def _charge_record(priced: PricedPlan, quote: Quote, reason: str) -> Mapping[str, Any]:
    accepted = {} if priced.accepted_delta is None else {"accepted_delta": priced.accepted_delta}
    final = {"final": 1} if priced.plan.finals and reason == "plan" else {}
    return {
        **accepted,
        **final,
        "reason": reason,
        "rule": dict(priced.plan.rule) | {"name": priced.rule.name},
        "claimed_by": quote.claimed_by,
        "bounds": dict(quote.bounds),
        "refusals": dict(quote.refusals),
        "parts": dict(quote.parts),
        "bounds_by_part": {part: dict(bounds) for part, bounds in quote.bounds_by_part.items()},
        "attack": quote.lower,
        "units": priced.units,
    }


def attempts_of(plan: Plan, ledger: Ledger) -> Attempts:
    """The plan's attempts according to the current ledger."""
    return ledger.statement(plan.account, plan.id).attempts(plan.id)


def reconcile_store_with_ledger(plan: Plan, ledger: Ledger, folder: SweepFolder) -> None:
    """Prepares the store so that attempts may resume, for a plan with all its attempts in the ledger.

    If the store is lost or was restored, every attempt that has not ended counts as used.
    """
    store, attempts = folder.private, attempts_of(plan, ledger)
    if not store.agrees(attempts.launch):
        for trial, attempt, resume in attempts.open_attempts():
            void_claims(store.record(trial), attempt, resume)
            void_marks(store.record(trial), attempt)


def record_launch(plan: Plan, ledger: Ledger, store: PrivateStore) -> str:
    """Records a launch in the ledger and in the store; returns its nonce, which the launch's receipts carry."""
    nonce = new_nonce()
    store.announce(nonce, last=attempts_of(plan, ledger).launch)
    ledger.launch(plan.account, plan=plan.id, nonce=nonce)
    store.confirm(nonce)
    return nonce
