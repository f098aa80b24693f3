"""Check that the files of a plan are the data of its account, independent of their names.

The ledger decides in `Ledger.recognise` and records the decision. This module provides the inputs, which are the
contents of the files and the key, and a preview of the decision that opens no account and creates no key. Invariant: a
key is created only for a ledger without data sets, since a new key recognises none of the known data sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content, Fingerprint, Key, news_of, no_key
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.names.stored_classes import KIND
from dpsweep.accounting.records.plan import Plan
from dpsweep.sweeper.trial.spec import declare


def read_contents(plan: Plan, folder: Path | None) -> tuple[Content, ...]:
    """The contents of the plan's files with private records, located and verified."""
    dataset = declare(plan.trials[0].config).dataset
    dataset.locate(folder)
    return dataset.verify(folder)


def fingerprint_of(contents: Sequence[Content], ledger: Ledger) -> Fingerprint:
    """The contents' fingerprint by the user's key, or a rehearsal's own; raises `BadInput` if it is lost."""
    path = Key.locate() if ledger.home is None else ledger.beside / "fingerprint.key"
    key = Key.read(path)
    if key is None and ledger.data_sets():
        raise no_key(ledger.name)
    return (key or Key.open(path)).fingerprint(contents)


def news(account: str, data: Fingerprint, ledger: Ledger) -> str:
    """A message about new data of an account, open or not; raises `BadInput` as `Ledger.recognise` would."""
    return news_of(data, account, ledger.data_sets(), ledger.name) or ""


def absent(plan: Plan, folder: Path | None) -> str:
    """A sentence on files of the data set that are not there yet; empty if they are, or if this is not known.

    Nothing is opened or downloaded. A class of the user's is not asked: it may do either.
    """
    config = plan.trials[0].config
    if KIND not in config["dataset"]:
        return ""
    dataset = declare(config).dataset
    dataset = getattr(dataset, "of", dataset)
    if (files := getattr(dataset, "files", None)) is not None:
        return str(files.absent(dataset.name, folder))
    try:
        dataset.locate(folder)
    except BadInput as missing:
        return str(missing)
    return ""


def foresee(plan: Plan, folder: Path | None, ledger: Ledger) -> str:
    """The message or refusal that a sweep would give about the data; empty if this would need a download.

    The key is read and never created.
    """
    if not ledger.data_sets():
        return ""
    if getattr(declare(plan.trials[0].config).dataset, "file", None) is None:
        return ""
    try:
        return news(plan.account, fingerprint_of(read_contents(plan, folder), ledger), ledger)
    except BadInput as refusal:
        return str(refusal)


def changed_since(data: Fingerprint, plan: Plan, folder: Path | None, ledger: Ledger) -> str:
    """A message if the files changed during the sweep; empty if they did not.

    The change is not written into the ledger, where its time would reveal when a search ended.
    """
    try:
        now = fingerprint_of(read_contents(plan, folder), ledger)
    except BadInput as cause:
        return f"The data of {plan.account} can no longer be read as they were before this sweep. {cause}"
    if now == data:
        return ""
    return (
        f"The data of {plan.account} changed while this sweep ran: not all of its runs read the same records. What was "
        "charged covers the records of either."
    )
