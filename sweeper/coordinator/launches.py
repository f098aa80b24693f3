"""Launches of a coordinator: the private store is checked against the ledger, and a new nonce voids earlier receipts.

The order is

    reconcile -> admit -> announce the nonce in the store -> the nonce's line in the ledger -> confirm it in the store

and a crash at any of these steps leaves a store that agrees with the ledger, or a store that lets nothing resume.
"""

from __future__ import annotations

from dpsweep.accounting.ledger.account import Attempts
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import PrivateStore, new_nonce
from dpsweep.accounting.ledger.receipt import void_claims
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.step_log import void_marks
from dpsweep.accounting.records.sweep_folder import SweepFolder


def attempts_of(plan: Plan, ledger: Ledger) -> Attempts:
    """The plan's attempts according to the current ledger."""
    return ledger.statement(plan.account, plan.id).attempts(plan.id)


def reconcile(plan: Plan, ledger: Ledger, folder: SweepFolder) -> None:
    """Prepares the store so that attempts may resume, for a plan with all its attempts in the ledger.

    If the store is lost or was restored, every attempt that has not ended counts as used.
    """
    store, attempts = folder.private, attempts_of(plan, ledger)
    if not store.agrees(attempts.launch):
        for trial, attempt, resume in attempts.open_attempts():
            void_claims(store.record(trial), attempt, resume)
            void_marks(store.record(trial), attempt)


def launch(plan: Plan, ledger: Ledger, store: PrivateStore) -> str:
    """Records a launch in the ledger and in the store; returns its nonce, which the launch's receipts carry."""
    nonce = new_nonce()
    store.announce(nonce, last=attempts_of(plan, ledger).launch)
    ledger.launch(plan.account, plan=plan.id, nonce=nonce)
    store.confirm(nonce)
    return nonce
