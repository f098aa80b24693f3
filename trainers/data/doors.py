"""The two doors to private records, and no third.

Before a charge, `inspect_records` says what the files are, and `refuse_records` whether they can be used: neither
returns a record. After it, `open_records` returns them to whoever holds a session, which only a claim makes.
`tests/trainers/data/test_doors.py` holds all other code to these three.

A script of the user's opens its own files: its session says what it declared, and its page that nobody checked the
reading.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.ledger.permit import Session

if TYPE_CHECKING:
    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.interface import DataSet
    from dpsweep.trainers.data.records import Records


def inspect_records(dataset: DataSet, folder: Path | None, cache: Path | None = None) -> tuple[Content, ...]:
    """The digests of the files with private records, located and verified; raises `BadInput` for damaged ones.

    In the private folder `cache` lies what an earlier pass over large files found.
    """
    dataset.locate(folder)
    return dataset.verify_with_cache(folder, cache)


def refuse_records(
    dataset: DataSet, folder: Path | None, cache: Path | None, check: Callable[[Records, Records | None], None]
) -> None:
    """Lets `check` raise `BadInput` for private records, and public test records, that cannot be used as declared."""
    check(*dataset.load_with_cache(folder, cache))


def open_records(
    session: Session | None, dataset: DataSet, folder: Path | None, cache: Path | None
) -> tuple[Records, Records | None]:
    """The private records and the public test records, for the holder of a session.

    Without a session, generated records alone are opened; raises `ContractBroken` for others, and for those of another
    account than the session's.
    """
    receipt = session.receipt if isinstance(session, Session) else None
    if receipt is not None and receipt.account != dataset.name:
        raise ContractBroken(f"What was claimed pays for the records of {receipt.account}, not of {dataset.name}.")
    if not isinstance(session, Session) and not dataset.is_generated:
        raise ContractBroken(f"Nothing was claimed that pays for the records of {dataset.name}: they stay closed.")
    return dataset.load_with_cache(folder, cache)
