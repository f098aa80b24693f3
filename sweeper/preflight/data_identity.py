"""Whether the files that a plan would read are those that its account stands for, whatever they are called.

The ledger decides, in `Ledger.recognise`, and writes it down. Here is what it takes to ask it, the contents of the
files and the key, and the same answer given beforehand, while no account is opened and no key made. What always holds:
a key is made only for a ledger that knows no data set yet, since a new key recognises none of those that it knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content, Fingerprint, Key, news_of, no_key
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.sweeper.trial.spec import declare


def read_contents(plan: Plan, folder: Path | None) -> tuple[Content, ...]:
    """What the plan's files with private records hold, found and checked."""
    dataset = declare(plan.trials[0].config).dataset
    dataset.locate(folder)
    return dataset.verify(folder)


def fingerprint_of(contents: Sequence[Content], ledger: Ledger) -> Fingerprint:
    """The contents' fingerprint by the user's key; raises `BadInput` where the key of this ledger is lost."""
    path = Key.locate()
    key = Key.read(path)
    if key is None and ledger.data_sets():
        raise no_key(ledger.name)
    return (key or Key.open(path)).fingerprint(contents)


def news(account: str, data: Fingerprint, ledger: Ledger) -> str:
    """What is new about the data of an account, open or not; raises `BadInput` as `Ledger.recognise` would."""
    return news_of(data, account, ledger.data_sets(), ledger.name) or ""


def foresee(plan: Plan, folder: Path | None, ledger: Ledger) -> str:
    """What a sweep would say of the data, or be refused for; nothing where only a download could tell.

    The key is read and never made.
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
    """What to say after a sweep whose files are not what they were before it; nothing where they are.

    It is not written into the ledger, where its time would tell when a search ended.
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
