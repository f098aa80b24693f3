"""Admission of a plan: charges it or refuses it, and determines the runs that are due. Every run is paid in advance.

An attempt is *finished* when its result file says so, *interrupted* when it may resume from a checkpoint, and *killed*
when the ledger says that it started and it can no longer end here, also if the folder was deleted, copied or restored.
Finished attempts are neither run nor charged again. Interrupted attempts resume, and points that never began run, on
the existing charge. Killed attempts take a spare attempt; without one they wait until the user accepts another charge.

At a launch the private store is checked against the ledger, and a new nonce voids earlier receipts. The order is

    reconcile -> admit -> announce the nonce in the store -> the nonce's line in the ledger -> confirm it in the store

and a crash at any of these steps leaves a store that agrees with the ledger, or a store that lets nothing resume.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial

from dpsweep.accounting.cautions import require_small_or_accepted_delta
from dpsweep.accounting.chain.hash_chain import new_nonce
from dpsweep.accounting.errors import BadInput, BudgetRefused
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.ledger.book import Attempts, Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import PrivateStore, claim_path
from dpsweep.accounting.ledger.statement import recorded_budgets, refusal_text, require_recorded_budget
from dpsweep.accounting.notation import epsilon_text_rounded_up, text_with_all_digits
from dpsweep.accounting.pricing.alternatives import advice_sentences_for_repetition, advice_sentences_to_fit_budget
from dpsweep.accounting.pricing.panel import Quote
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.remaining_budget import RemainingBudget
from dpsweep.accounting.printing import print_line
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.taken_steps import void_attempt
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.rehearsal import WITHOUT_SPENDING, is_rehearsal_plan
from dpsweep.accounting.searches.interface import PlannedSearch
from dpsweep.sweeper.job.attempt_state import AttemptState, AttemptStates, state_of_started_attempt


class Retry(StrEnum):
    """Which ended attempts a repeated command runs again.

    PAID: the killed ones that are paid for; the others wait. KILLED and FAILED: these, on another charge if necessary.
    AGAIN: the killed ones or, if there are none, the whole sweep, on another charge. NONE: nothing waits for any.
    """

    PAID = "paid"
    KILLED = "killed"
    FAILED = "failed"
    AGAIN = "again"
    NONE = "none"


def states_of_known_runs(search: PlannedSearch, attempts: Attempts) -> AttemptStates:
    """The runs that are known so far by the state of their last attempt, from the ledger first and the files second."""
    folder, states = search.folder, list[tuple[Trial, AttemptState]]()
    for trial in search.search_and_final_runs():
        state, started = AttemptState.FRESH, attempts.started[trial.id]
        if started:
            ended = attempts.final_end(trial.id, started) is not None
            place = folder.trial_folder_and_private_record(trial.id)
            state = state_of_started_attempt(place, trial, started, ended=ended)
        states.append((trial, state))
    return AttemptStates.from_trials_with_states(states)


def charge_and_admit_runs(priced: PricedPlan, search: PlannedSearch, ledger: Ledger, retry: Retry) -> tuple[Trial, ...]:
    """Charges what is not charged yet and returns the runs that are due, or raises `BudgetRefused`.

    The first call charges the whole plan at once. Later calls charge the attempts to repeat, except those that spare
    attempts cover and those that were paid for and never began, if the user accepts it (`may_charge_again`).
    """
    plan = priced.plan
    open_account_or_check_budget(priced, ledger)
    attempts = ledger.attempts_of_plan(plan.account, plan.id)
    _refuse_attempts_unknown_to_ledger(search, attempts)
    if retry is not Retry.AGAIN:
        _refuse_paid_result_with_newer_attempt(priced, search, attempts)
    if not attempts.charges:
        ways = partial(advice_sentences_to_fit_budget, priced, plan.trials)
        names = search.names_of_attempts_to_charge
        spares = search.number_of_unnamed_attempts_to_charge
        charge_account(ledger, priced, ways, "plan", names, spares=spares)
        return search.search_and_final_runs()
    where = states_of_known_runs(search, attempts)
    repeats = {
        Retry.PAID: where.killed,
        Retry.KILLED: where.killed,
        Retry.FAILED: where.killed + where.failed,
        Retry.AGAIN: where.killed or where.failed + where.finished,
        Retry.NONE: (),
    }[retry]
    ended = where.killed + where.failed + where.finished
    again = tuple(trial for trial in ended if trial in repeats or _is_paid_attempt_left(attempts, trial))
    beyond = _runs_without_paid_attempt(search, attempts, again)
    if beyond and not may_charge_again(plan, retry):
        again = tuple(trial for trial in again if trial not in beyond)
    elif beyond:
        event, quote = priced.quote_retry(beyond)
        if price := _charge_and_rest_phrase(priced, ledger, event, quote):
            runs = f"{len(beyond)} run{'s are' if len(beyond) != 1 else ' is'} repeated"
            print_line(f"{runs}: this {price}.", flush=True)
        ways = partial(advice_sentences_for_repetition, priced, event)
        charge_account(ledger, priced, ways, "repeat", [trial.id for trial in beyond], retry=beyond)
    return where.fresh + where.interrupted + again


def may_charge_again(plan: Plan, retry: Retry) -> bool:
    """Whether a plan that was charged may be charged once more: if the user says so, or if its data are public."""
    return retry in (Retry.KILLED, Retry.FAILED, Retry.AGAIN) or plan.has_public_data


def killed_runs_notice(priced: PricedPlan, search: PlannedSearch, ledger: Ledger, command: str) -> str:
    """What it costs to repeat the killed runs, and the `command` that does it; empty if no run was killed."""
    plan, attempts = priced.plan, ledger.attempts_of_plan(priced.plan.account, priced.plan.id)
    states = states_of_known_runs(search, attempts)
    killed = search.killed_runs_to_repeat(states.killed)
    beyond = () if may_charge_again(plan, Retry.PAID) else _runs_without_paid_attempt(search, attempts, killed)
    sentences = []
    if paid := len(killed) - len(beyond):
        sentences.append(
            f"The same command repeats {_killed_runs_text(paid)} without another charge; a release "
            "before that fixes the winner."
        )
    if beyond:
        event, quote = priced.quote_retry(beyond)
        balance = ledger.statement(plan.account, plan.id).balance
        takes = balance.policy.amounts_of_charge(quote.guarantee, None)
        refusal = refusal_text(plan.account, balance, quote.guarantee, takes)
        price = _charge_and_rest_phrase(priced, ledger, event, quote)
        repeat = f"Another attempt at {_killed_runs_text(len(beyond))} is not paid for"
        sentences.append(f"{repeat}: it {price}." if price else f"{repeat}, and does not fit. {refusal}")
        sentences.append(f"`dpsweep report {shlex.quote(str(search.folder.root))}` shows what finished.")
        sentences.append(f"To accept the charge: {command}" if price else "")
    return " ".join(sentences).strip()


def _killed_runs_text(count: int) -> str:
    return f"{count} run{'s that were' if count != 1 else ' that was'} killed or lost"


def _is_paid_attempt_left(attempts: Attempts, trial: Trial) -> bool:
    return attempts.started[trial.id] < attempts.covered[trial.id]


def _runs_without_paid_attempt(search: PlannedSearch, attempts: Attempts, runs: Sequence[Trial]) -> tuple[Trial, ...]:
    """Those of these ended runs whose next attempt neither a charge of their own nor a spare attempt pays for."""
    unpaid = [trial for trial in runs if not _is_paid_attempt_left(attempts, trial)]
    spares = attempts.spares - search.number_of_unnamed_attempts_needed(attempts)
    return tuple(unpaid[max(0, spares) :])


def open_account_or_check_budget(priced: PricedPlan, ledger: Ledger) -> None:
    """Opens the account if it is new; a budget that the user gave must match the account's."""
    plan = priced.plan
    statement = ledger.open_account(plan.account, plan.budget)
    if priced.budget_given:
        require_recorded_budget(statement, plan.budget)


def require_accepted_delta(priced: PricedPlan) -> None:
    """Raises `BadInput` if delta is 1 / units or more and was not accepted; data declared public are exempt."""
    plan = priced.plan
    if priced.is_delta_large:
        require_small_or_accepted_delta(plan.delta, priced.units, plan.unit, priced.accept_delta)


def budget_raised_since_given_message(priced: PricedPlan, statement: Statement) -> str:
    """A message if the user gave an earlier budget of the account; empty if the budget is the current one."""
    named, now = priced.plan.budget, statement.budget
    if not priced.budget_given or named not in recorded_budgets(statement) or named == now:
        return ""
    budget = f"epsilon {text_with_all_digits(named.epsilon)}, delta {text_with_all_digits(named.delta)}"
    return (
        f"The budget of {statement.account} was raised to epsilon {text_with_all_digits(now.epsilon)}, delta "
        f"{text_with_all_digits(now.delta)} since; this command names {budget}. The account's budget counts."
    )


def _charge_and_rest_phrase(priced: PricedPlan, ledger: Ledger, event: PlanEvent, quote: Quote) -> str:
    """What another charge takes and leaves; empty if it does not fit, or the data are public."""
    plan, statement = priced.plan, ledger.statement(priced.plan.account, priced.plan.id)
    if plan.has_public_data:
        return ""
    room = RemainingBudget.for_plan(priced, statement)
    takes = room.balance.policy.amounts_of_charge(quote.guarantee, event)
    if not room.balance.has_room(takes):
        return ""
    rest = room.rest_after_charge_phrase(takes)
    return f"charges epsilon {epsilon_text_rounded_up(quote.epsilon)} more, and leaves {rest} on {plan.account}"


def _refuse_attempts_unknown_to_ledger(search: PlannedSearch, attempts: Attempts) -> None:
    """Raises `BadInput` for attempts that this ledger never started: they were charged elsewhere or not at all."""
    plan, folder = search.plan, search.folder
    for trial in search.search_and_final_runs():
        attempt = attempts.started[trial.id] + 1
        if claim_path(folder.trial_folder(trial.id), attempt).exists():
            raise BadInput(
                f"Expected {folder.root} to hold no attempts but those of the ledger {plan.account} is kept in; "
                f"attempt {attempt} at trial {trial.id} is not in it. Use the ledger that it was run with "
                "(DPSWEEP_LEDGER), or another hydra.sweep.dir."
            )


def _refuse_paid_result_with_newer_attempt(priced: PricedPlan, search: PlannedSearch, attempts: Attempts) -> None:
    """Raises `BadInput` if the folder has a finished, paid result and the ledger has a newer attempt at its trial."""
    folder, runs = search.folder, search.search_and_final_runs()
    for trial in runs:
        result, started = TrialResult.read(folder.trial_folder(trial.id)), attempts.started[trial.id]
        if result is not None and result.attempt < started and result.status is Status.FINISHED:
            plan, (_, quote) = priced.plan, priced.quote_retry(runs)
            raise BadInput(
                f"Expected {folder.root} to be where the newest attempts of plan {plan.id} ran: it holds the result of "
                f"attempt {result.attempt} at trial {trial.id}, which is paid, and the ledger knows attempt {started}. "
                "Nothing was overwritten. `dpsweep report` shows this folder as it is; to go on with the newest "
                "attempts give another hydra.sweep.dir; --again repeats them here and charges at most epsilon "
                f"{epsilon_text_rounded_up(quote.epsilon)} more."
            )


def charge_account(
    ledger: Ledger,
    priced: PricedPlan,
    ways: Callable[[Statement], str],
    reason: str,
    names: Sequence[str],
    *,
    spares: int = 0,
    retry: Sequence[Trial] = (),
) -> None:
    """Charges the account the whole plan, or one more attempt at each trial of `retry`.

    The charge pays for one attempt at each of `names`, and for `spares` attempts at any trial. A refusal says what
    would fit, by `ways` on the account. Raises `BadInput` if delta is 1 / units or more and was not accepted.
    """
    plan, accepted = priced.plan, priced.large_accepted_delta_or_none
    require_accepted_delta(priced)
    try:
        ledger.charge(
            plan.account,
            plan=plan.id,
            trials=names,
            rule=plan.rule,
            points=priced.points_of_retry(retry) if retry else plan.priced_events,
            delta=plan.delta,
            opinions=priced.panel,
            record={
                **({} if accepted is None else {"accepted_delta": accepted}),
                **({"final": 1} if plan.final_runs and reason == "plan" else {}),
                "reason": reason,
                "units": priced.units,
            },
            query=None if retry else plan.query_of_card,
            spares=spares,
            sealed=replace(plan.sealed_charge, card=None) if retry and plan.sealed_charge else plan.sealed_charge,
        )
    except BudgetRefused as refusal:
        hint = "" if is_rehearsal_plan(plan) else f" {WITHOUT_SPENDING}"
        statement = ledger.statement(plan.account, plan.id)
        why = refusal_text(plan.account, **refusal.facts) if refusal.facts else str(refusal)
        raise BudgetRefused(f"{why} {ways(statement)}{hint}") from None


def void_open_attempts_if_store_was_lost(plan: Plan, ledger: Ledger, folder: SweepFolder) -> None:
    """Prepares the store so that attempts may resume, for a plan with all its attempts in the ledger.

    If the store is lost or was restored, every attempt that has not ended counts as used.
    """
    store, attempts = folder.private_store, ledger.attempts_of_plan(plan.account, plan.id)
    if not store.has_launch_nonce(attempts.launch):
        for trial, attempt, resume in attempts.open_sessions():
            void_attempt(store.trial_record_folder(trial), attempt, resume)


def record_launch_and_return_nonce(plan: Plan, ledger: Ledger, store: PrivateStore) -> str:
    """Records a launch in the ledger and in the store; returns its nonce, which the launch's receipts carry."""
    nonce = new_nonce()
    store.announce_launch(nonce, last=ledger.attempts_of_plan(plan.account, plan.id).launch)
    ledger.launch(plan.account, plan=plan.id, nonce=nonce)
    store.confirm_launch(nonce)
    return nonce
