"""Search that hides its losing trials: one charge, one start and one end in the ledger, independent of the draw.

The number of drawn trials and their results are as secret as the noise, so they are stored only in the sweep's folder
and in the private store. The ledger, which several people may read, records one attempt at the search as a whole and
settles it at once, since the time of its end would reveal the number of trials. The ledger records every launch of a
coordinator, but never a drawn trial. The order is

    draw, in memory -> charge -> draw.json -> search record in the store -> start and settle -> launch
        -> a receipt per trial -> outcome in the store -> outcome.json

and a coordinator that dies at any of these steps continues from there, with the stored draw. A trial that began is
never restarted: a replacement for a trial that died would depend on how the first attempt went. Once the store has the
record, the draw is never replaced: if it is lost, or lies in another folder, another search is another charge. If the
store is lost or contradicts the folder, nothing trains.

Under a rule with a final run, the winner of the outcome runs once more, on the same charge and start: the time of a
separate start would reveal the number of trials too. A killed final run is not repeated; the winner of the search
stays.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from random import SystemRandom
from secrets import token_hex

from dpsweep.accounting.chain.hash_chain import new_nonce
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.book import Ended, Started, Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.accounting.pricing.alternatives import advice_sentences_to_fit_budget
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.searches.interface import search_for_plan
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.searches.stored_draw import (
    COIN_BYTES,
    SearchRecord,
    StoredDraw,
    is_on_secret_part_of_records,
    require_draw_paid_by_plan,
)
from dpsweep.sweeper.job.hidden_search_log import HiddenSearchLog
from dpsweep.sweeper.launchers.workers import Workers
from dpsweep.sweeper.searches.admission import (
    Retry,
    charge_account,
    may_charge_again,
    open_account_or_check_budget,
    record_launch_and_return_nonce,
)
from dpsweep.sweeper.searches.interface import AdmittedSearch, RunQueue
from dpsweep.sweeper.searches.runner import Runner


class AdmittedSecretDraw(AdmittedSearch):
    """The tries of a secret draw, of which the ledger knows the search as a whole."""

    @classmethod
    def workers_that_share_runs(cls, workers: Workers) -> Workers:
        """One where others may see a list of jobs."""
        return workers.limited_for_secret_draw()

    @classmethod
    def launcher_refusal_sentence(cls, rule: str, workers: Workers, resume: int) -> str:
        """What these workers would show of the draw."""
        return workers.refusal_sentence_of_secret_draw(rule, resume)

    @cached_property
    def search_of_plan(self) -> SecretDraw:
        """The search of the plan."""
        search = search_for_plan(self.plan, self.folder)
        assert isinstance(search, SecretDraw)
        return search

    def are_all_runs_finished(self) -> bool:
        """False: only the admitted search knows, from the private store."""
        return False

    def charge_and_queue_due_runs(self) -> RunQueue:
        """The tries that may begin or resume, in turn by as many jobs as there are workers."""
        log = self.charge_and_start_or_continue_search()
        if log.receipt.launch:
            log.record_ended_attempts()  # the last try may have ended without a coordinator to see it
        where = log.states_of_runs()
        return RunQueue(
            total=log.search.number_of_runs,
            due=where.fresh + where.interrupted if log.receipt.launch else (),
            log=log,
            more=log.final_run_if_due,
            run=Runner.run_tries_on_workers_and_collect_errors,
            all_known=True,
            notice=f"Only {self.folder.root}/release/ may leave: {self.priced.rule.name} shows its winner alone. Keep "
            "this terminal output, its exit code and the running time to yourself.",
            idle="This search is over; nothing more is run or charged.",
            losses="tries failed or were killed: they score worst, stay charged with the search, and are never "
            "repeated. Their logs are in {folder}.",
        )

    def charge_and_start_or_continue_search(self) -> HiddenSearchLog:
        """Charges the search unless it was charged, stores its draw and starts it; or continues the stored search.

        Raises `BudgetRefused` if the search does not fit, and `BadInput` if `retry` asks to repeat trials.
        """
        plan, folder, ledger, retry = self.plan, self.folder, self.ledger, self.retry
        if retry is Retry.FAILED or (retry is Retry.AGAIN and self.search_of_plan.stored_draw is not None):
            raise BadInput(
                f"Expected hydra.sweeper.retry={retry} to be left out: under "
                f"{self.priced.rule.name} a try that ended is never repeated, since its price is that of tries made "
                "without looking. Another search needs another charge and another hydra.sweep.dir."
            )
        open_account_or_check_budget(self.priced, ledger)
        statement = ledger.statement(plan.account, plan.id)
        stored = self.search_of_plan.stored_draw
        if stored is None:
            stored = self._charge_and_store_new_draw()
        elif stored.attempt > statement.attempts_of_plan(plan.id).covered[plan.id]:
            raise _error_for_search_missing_in_ledger(folder, statement)
        record = self.search_of_plan.private_record_of_draw(stored)
        if stored.attempt > ledger.attempts_of_plan(plan.account, plan.id).started[plan.id]:
            record.store_digest_of_draw(folder.draw_path)
            _record_start_of_search_attempt(self.search_of_plan, self.ledger)
        _record_ends_of_search_attempts(plan, ledger, stored.attempt)
        log = HiddenSearchLog(
            search=self.search_of_plan, stored=stored, receipt=_receipt_of_whole_search(plan, ledger, stored)
        )
        if self._has_search_ended_in_folder_and_store(stored, record):
            return log
        self._require_store_agrees_with_folder(stored, record)
        return replace(
            log, receipt=replace(log.receipt, launch=record_launch_and_return_nonce(plan, ledger, folder.private_store))
        )

    def _has_search_ended_in_folder_and_store(self, stored: StoredDraw, record: SearchRecord) -> bool:
        """Whether the folder holds the outcome of the search, its final run ended, and the store, if any, agrees.

        A search of no trials has not ended before its first launch; otherwise the missing launch would reveal it.
        """
        outcome, final = self.search_of_plan.outcome_of_draw(stored), self.search_of_plan.state_of_final_run(stored)
        if outcome is None or (record.exists and record.outcome != outcome):
            return False
        return final is None or final.ended

    def _require_store_agrees_with_folder(self, stored: StoredDraw, record: SearchRecord) -> None:
        """Raises `BadInput` if the private store is lost, was restored, or contradicts the folder."""
        plan, folder = self.plan, self.folder
        ending = "Another search needs another charge and another hydra.sweep.dir."
        if not record.exists or not folder.private_store.has_launch_nonce(
            self.ledger.attempts_of_plan(plan.account, plan.id).launch
        ):
            raise BadInput(
                f"Expected the private store {folder.private_store.root} to know how far the search in {folder.root} "
                "went: "
                f"it is lost, or an older copy of it, so nothing trains. {ending}"
            )
        if difference := self.search_of_plan.difference_from_private_store_text(stored):
            raise BadInput(
                f"Expected {folder.root} to be where the search of plan {plan.id} was made last: it {difference}. It "
                f"is an older copy, or was changed, so nothing trains. {ending}"
            )

    def _charge_and_store_new_draw(self) -> StoredDraw:
        """Draws, charges unless an unused charge exists, and stores the draw; a refused charge leaves no draw behind.

        A draw that the store has a record of, and that did not start, uses its charge.
        """
        priced, plan, folder, ledger = self.priced, self.plan, self.folder, self.ledger
        statement = ledger.statement(plan.account, plan.id)
        covered = statement.attempts_of_plan(plan.id).covered[plan.id]
        attempt = statement.attempts_of_plan(plan.id).started[plan.id] + 1
        lost = attempt <= covered and SearchRecord(store=folder.private_store, attempt=attempt).exists
        attempt += lost
        if any(folder.trials_folder.glob(f"*/claim-{attempt}")):
            raise _error_for_search_missing_in_ledger(folder, statement)
        draw = require_draw_paid_by_plan(plan, priced.rule.draw(len(plan.trials), SystemRandom()))
        coins = token_hex(COIN_BYTES) if any(is_on_secret_part_of_records(trial) for trial in plan.trials) else ""
        stored = StoredDraw(plan=plan.id, attempt=attempt, draw=draw, salt=new_nonce(), coins=coins)
        if attempt > covered:
            if attempt > 1 and not may_charge_again(plan, self.retry):
                raise BadInput(
                    f"Expected {folder.draw_path} to hold the draw of the search that was charged: it is lost, and "
                    "another search is not paid for. --again makes one and charges epsilon "
                    f"{epsilon_text_rounded_up(priced.quote.epsilon)} more."
                )
            reason = "plan" if attempt == 1 else "repeat"
            ways = partial(advice_sentences_to_fit_budget, priced, plan.trials)
            charge_account(ledger, priced, ways, reason, self.search_of_plan.names_of_attempts_to_charge)
        if lost:
            _record_start_of_search_attempt(self.search_of_plan, self.ledger)
        folder.create_folder()
        stored.write(folder.draw_path)
        return stored


def _record_start_of_search_attempt(search: SecretDraw, ledger: Ledger) -> None:
    """Records the start of the next attempt at the search."""
    plan, declared = search.plan, search.declared_events(())
    ledger.start(plan.account, plan=plan.id, trials=[plan.id], declared=declared)


def _record_ends_of_search_attempts(plan: Plan, ledger: Ledger, last: int) -> None:
    """Records that the attempts up to this one ended, whose ends nobody may see; each is recorded once."""
    ends = [
        Ended(trial=plan.id, attempt=attempt, resume=0, realised={"status": "kept from the ledger"})
        for attempt in range(1, last + 1)
    ]
    ledger.end(plan.account, plan=plan.id, ended=ends)


def _receipt_of_whole_search(plan: Plan, ledger: Ledger, stored: StoredDraw) -> Receipt:
    """The receipt of the whole search, from the ledger entry of its start."""
    statement = ledger.statement(plan.account, plan.id)
    entry = [entry for entry in statement.entries if entry.kind == Started.kind][stored.attempt - 1]
    return Receipt.from_entry(entry, statement.attempts_of_plan(plan.id).starts[plan.id, stored.attempt])


def _error_for_search_missing_in_ledger(folder: SweepFolder, statement: Statement) -> BadInput:
    return BadInput(
        f"Expected {folder.root} to hold no search but those of the ledger {statement.account} is kept in. Use the "
        "ledger that it was run with (DPSWEEP_LEDGER), or another hydra.sweep.dir."
    )
