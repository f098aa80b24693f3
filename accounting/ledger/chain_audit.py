"""Checks of a ledger beyond its hash chain: balances must follow, and remembered ends must be in the chain.

This machine (`accounting/ledger/remembered_ends.py`) and receipts remember ends of the chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpsweep.accounting.chain.entries import Entry, Kind
from dpsweep.accounting.chain.hash_chain import End, Lines
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.ledger.account import Balance
from dpsweep.accounting.ledger.bodies import Opened, read_body
from dpsweep.accounting.validation import as_written

FREE = (
    *(Kind.START, Kind.RESUME, Kind.SETTLE, Kind.DATA, Kind.LAUNCH, Kind.RELEASE, Kind.MANIFEST),
    *(Kind.IDENTITY, Kind.WITNESS),
)
"""Kinds of entries that leave the balance unchanged."""


def count_whole(lines: Lines, name: str) -> int:
    """The number of entries; checks that each is whole and that its balance follows from the entries before it."""
    return sum(1 for _ in verified_entries(lines, name))


def verified_entries(lines: Lines, name: str) -> Iterator[tuple[Entry, Balance]]:
    """All entries in order, each with the balance after it; raises `LedgerDamaged` at the first bad entry."""
    with as_written(f"the ledger {name}", LedgerDamaged):
        yield from _verify_entries(lines, name)


def _verify_entries(lines: Lines, name: str) -> Iterator[tuple[Entry, Balance]]:
    balances: dict[str, tuple[Mapping[str, Any], Balance]] = {}
    for entry in lines.walk():
        known = balances.get(entry.account)
        if known is not None and entry.kind in FREE and entry.balance == known[0]:
            yield entry, known[1]
            continue
        body = read_body(entry)
        if known is None and isinstance(body, Opened):
            after = Balance.opened(body)
        elif known is not None and not isinstance(body, Opened):
            after = known[1].after(body)
        else:
            raise LedgerDamaged(f"Entry {entry.seq} of {name} does not follow from those before it: {entry.kind}.")
        if after.to_json() != entry.balance:
            raise LedgerDamaged(f"The balance in entry {entry.seq} of {name} does not follow from those before it.")
        balances[entry.account] = (entry.balance, after)
        yield entry, after


def refuse_another(name: str, lines: Lines | None, ends: Sequence[End], who: str, otherwise: str = "") -> None:
    """Raises `LedgerDamaged` if the ledger lacks an end that `who` remembers; `lines` is None without a ledger."""
    missing = [end for end in ends if end.entries and (lines is None or not lines.holds(end))]
    if missing:
        count = 0 if lines is None else lines.end().entries
        difference = f"has {count} entries and not the" if count < missing[0].entries else "has others than the first"
        raise LedgerDamaged(
            f"The ledger {name} {difference} {missing[0].entries} that {who} remembers: it was cut short, or another "
            "one was put in its place. `dpsweep budget restore` puts back what is known, also from a copy (--backup "
            "FILE), and opens a copy for another purpose as another ledger (--as-another); or set DPSWEEP_LEDGER to "
            f"the right one{otherwise}."
        )
