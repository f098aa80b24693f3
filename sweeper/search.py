"""A search that hides its losers: one charge, one start and one end in the ledger, whatever its draw says.

The number of tries and what became of each are as secret as the noise, so they stand nowhere but in the sweep's own
folder: the ledger, which several people may read, sees one attempt at the search as a whole, and closes it at once,
since the time of its end would tell how many tries there were. The order is

    draw, in memory -> charge -> draw.json -> start and settle -> a receipt per try -> outcome.json

and a coordinator that dies anywhere in between goes on from there, with the draw that is stored. What has begun is
never begun again: another try in place of one that died would depend on how the first one went. A draw that is lost
takes its search with it; another search is another charge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import SystemRandom

from accounting.account import Ended, Kind, Statement
from accounting.errors import BadInput
from accounting.execution import Outcome, StoredDraw, Try, check_draw, end_mark, read_draw, scores_of
from accounting.folder import SweepFolder
from accounting.ledger import Ledger, receipt_of
from accounting.plan import Plan, Trial
from accounting.receipt import Receipt
from sweeper.admission import Retry, charge, open_account
from sweeper.attempts import Stage, Standing, stage_of
from sweeper.books import Work
from sweeper.compose import PricedPlan


@dataclass(frozen=True, kw_only=True)
class OneSearch:
    """The book of one attempt at such a search; `receipt` is that of the search as a whole."""

    plan: Plan
    folder: SweepFolder
    stored: StoredDraw
    receipt: Receipt

    def start(self, trials: Sequence[Trial]) -> tuple[Receipt, ...]:
        """A receipt for each of the tries that may begin or go on and could still win; the ledger hears nothing."""
        where = self.standing()
        able = {trial.id for trial in where.fresh + where.interrupted}
        return tuple(self._receipt(trial) for trial in trials if trial.id in able)

    def settle(self) -> None:
        """Marks what has ended as over and, after the last try, writes down who won; the ledger hears nothing of it."""
        for one in self.tries():
            if self._stage(one) in (Stage.FINISHED, Stage.FAILED, Stage.KILLED):
                mark = end_mark(self.folder.root, one.trial, self.stored.attempt)
                mark.parent.mkdir(mode=0o700, exist_ok=True)
                mark.touch(mode=0o600)
        scores = scores_of(self.tries())
        if not self.stored.draw.over(scores):
            return
        known = Outcome.read(self.folder.outcome)
        if known is None or known.attempt != self.stored.attempt:
            winner = self.stored.draw.winner(scores)
            Outcome(attempt=self.stored.attempt, winner=winner).write(self.folder.outcome)

    def standing(self) -> Standing:
        """By what has begun and the results; tries that can no longer win stand nowhere."""
        tries = self.tries()
        over = self.stored.draw.over(scores_of(tries))
        return Standing.of((one.trial, self._stage(one)) for one in tries if one.begun or not over)

    def runs(self) -> tuple[Trial, ...]:
        """The trials of all tries."""
        return tuple(one.trial for one in self.tries())

    def tries(self) -> tuple[Try, ...]:
        """All tries of the draw as they stand."""
        return self.folder.tries(self.plan, self.stored)

    def _stage(self, one: Try) -> Stage:
        """A try that was marked as over without a result was killed, whatever is left of its folder."""
        if not one.begun:
            return Stage.FRESH
        if one.ended and one.result is None:
            return Stage.KILLED
        return stage_of(self.folder.trial(one.trial.id), one.trial, self.stored.attempt)

    def _receipt(self, trial: Trial) -> Receipt:
        sessions = Receipt.sessions(self.folder.trial(trial.id), self.stored.attempt)
        return replace(self.receipt, trial=trial.id, resume=sessions)


def drawn_tries(priced: PricedPlan, ledger: Ledger, folder: SweepFolder, retry: Retry) -> Work:
    """The work of a plan that runs the tries of a secret draw, admitted."""
    book = admit_search(priced, ledger, folder, retry)
    where = book.standing()
    return Work(
        total=len(book.tries()),
        due=where.fresh + where.interrupted,
        book=book,
        notice=f"{priced.rule.name} lets out the winner alone: what follows here, the exit code, the time it takes and "
        f"all of {folder.root} but release/ are for the curator only.",
        idle="This search is over; nothing more is run or charged.",
        losses="tries failed or were killed: they score worst, stay charged with the search, and are never repeated. "
        "Their logs are in {folder}.",
        in_turn=book.stored.draw.threshold is not None,
    )


def admit_search(priced: PricedPlan, ledger: Ledger, folder: SweepFolder, retry: Retry) -> OneSearch:
    """Charges the search unless it was charged, stores its draw, starts it; or goes on with the one that is stored.

    Raises `BudgetRefused` where it does not fit, `BadInput` where tries should be repeated.
    """
    plan = priced.plan
    if retry in (Retry.FAILED, Retry.ALL):
        raise BadInput(
            f"Expected hydra.sweeper.retry={retry} to be {Retry.KILLED} or {Retry.NONE}: under {priced.rule.name} a "
            "try that ended is never repeated, since its price is that of tries made without looking. Another search "
            "is another charge: give it another hydra.sweep.dir."
        )
    open_account(priced, ledger)
    statement = ledger.statement(plan.account, plan.id)
    stored = read_draw(plan, folder.draw)
    if stored is None:
        stored = _new_draw(priced, ledger, folder, retry)
    elif stored.attempt > statement.covered(plan.id, plan.id):
        raise _stranger(folder, statement)
    if stored.attempt > statement.started(plan.id, plan.id):
        ledger.start(plan.account, plan=plan.id, trials=[plan.id])
    receipt = _receipt(plan, ledger, stored)
    kept = Ended(trial=plan.id, attempt=receipt.attempt, resume=0, realised={"status": "kept from the ledger"})
    ledger.settle(plan.account, plan=plan.id, ended=[kept])
    return OneSearch(plan=plan, folder=folder, stored=stored, receipt=receipt)


def _new_draw(priced: PricedPlan, ledger: Ledger, folder: SweepFolder, retry: Retry) -> StoredDraw:
    """Draws, charges unless a charge waits to be used, and stores the draw; a refused charge leaves none behind."""
    plan = priced.plan
    statement = ledger.statement(plan.account, plan.id)
    attempt = statement.started(plan.id, plan.id) + 1
    if any(folder.trials.glob(f"*/claim-{attempt}")):
        raise _stranger(folder, statement)
    draw = check_draw(plan, priced.rule.draw(len(plan.trials), SystemRandom()))
    stored = StoredDraw(plan=plan.id, attempt=attempt, draw=draw)
    if attempt > statement.covered(plan.id, plan.id):
        if attempt > 1 and retry is Retry.NONE:
            raise BadInput(
                f"Expected {folder.draw} to hold the draw of the search that was charged: it is lost, and with "
                f"hydra.sweeper.retry={retry} another search is not paid for."
            )
        reason = "plan" if attempt == 1 else "repeat"
        charge(ledger, priced, plan.trials, plan.event, priced.quote, reason, [plan.id])
    folder.root.mkdir(parents=True, exist_ok=True)
    folder.root.chmod(0o700)  # how many folders trials/ holds is as secret as the draw
    stored.write(folder.draw)
    return stored


def _receipt(plan: Plan, ledger: Ledger, stored: StoredDraw) -> Receipt:
    """The receipt of the search as a whole, from the entry of its start."""
    statement = ledger.statement(plan.account, plan.id)
    charge = statement.attempts(plan.id).charge_of(plan.id, stored.attempt).digest
    starts = [entry for entry in statement.entries if entry.kind == Kind.START]
    return receipt_of(starts[stored.attempt - 1], charge)


def _stranger(folder: SweepFolder, statement: Statement) -> BadInput:
    return BadInput(
        f"Expected {folder.root} to hold no search but those of the ledger {statement.account} is kept in. Use the "
        "ledger that it was run with (DPSWEEP_LEDGER), or another hydra.sweep.dir."
    )
