"""Places of trials without a sweep: one folder is a trial's folder and its record in the private store at once."""

from __future__ import annotations

from pathlib import Path

from dpsweep.accounting.events.build import PlanEvent, no_access
from dpsweep.accounting.ledger.permit import PrivateStore, Receipt, Session
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import TrialPlace

NONCE = "0f" * 16


def both(folder: Path) -> TrialPlace:
    """One folder for a trial's files and for its claims and marks."""
    return TrialPlace(files=folder, record=folder)


def launched(root: Path) -> PrivateStore:
    """A private store whose last launch has the nonce `NONCE`."""
    store = PrivateStore(root=root)
    store.announce_launch(NONCE, last=None)
    store.confirm_launch(NONCE)
    return store


READER = Session(event=PlanEvent(training=no_access()))
"""A session that no claim made, for tests that read records as a job does."""


def claimed(trial: Trial, receipt: Receipt) -> Session:
    """The session of a receipt, as a claim makes it."""
    return Session(event=trial.event, receipt=receipt)
