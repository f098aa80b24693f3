"""What a person does for a ledger: its mirrors are named and dropped on the record, and its chain is walked.

The ledger itself needs none of it: it brings lines back from its mirrors (`accounting/ledger/mirror.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dpsweep.accounting.chain.hash_chain import ROLE, SPENDING, End, Entry, Kind, Lines, entry_from_row, follows_line
from dpsweep.accounting.chain.storage import Chain
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.ledger.book import Balance, Mirrored, Opened, append_body, read_body
from dpsweep.accounting.ledger.mirror import Mirror, MirroredChain, named_mirrors, own_mirror
from dpsweep.accounting.validation import turn_read_errors_into_refusal

CHANGES = (Kind.OPEN, Kind.RAISE, Kind.CLOSE, *SPENDING)
"""Kinds of entries that change the balance."""


def writer_text(entry: Entry) -> str:
    """The writer, and what vouches for the name: a database server, or what the writer's machine said."""
    return entry.who if entry.who.startswith(ROLE) else f"{entry.who} (self-declared)"


@contextmanager
def server_lock(chain: Chain, name: str, what: str) -> Iterator[None]:
    """Holds the lock of this name on a ledger's server; raises `BadInput` if a process holds it that runs `what`.

    The lock belongs to a connection, so a ledger in a file has none: raises ValueError.
    """
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with ExitStack() as stack:
        with chain.errors_as_damage():
            holder = stack.enter_context(chain.database.hold_lock_or_yield_holder(key))
        if holder is not None:
            raise BadInput(f"{what} is being run by {holder}; nothing was started.")
        yield


def name_mirror(ledger: MirroredChain, path: Path | None) -> None:
    """Adds the line that the ledger has a mirror in this file, None for the user's own; whoever writes keeps it."""
    with ledger.read_transaction() as lines:
        identity = None if lines is None else lines.identity()
        if lines is None or identity is None:
            raise BadInput(f"Expected {ledger.chain.name} to be a ledger; the first sweep makes one.")
        if path is None and ledger.chain.file is None:
            raise BadInput(f"Expected a file for the mirror of {ledger.chain.name}: a server's has no other place.")
        mirror = own_mirror(identity) if path is None else Mirror(path=path.absolute())
        if not lines.had_end(mirror.end()):
            raise BadInput(f"Expected {mirror.path} to be a new file: it has lines of another ledger.")
    mirror.create()
    with ledger.write_transaction() as lines:
        _append_line(ledger, lines, Mirrored(path="" if path is None else str(mirror.path)))


def drop_mirror(ledger: MirroredChain, path: Path) -> None:
    """Adds the line that the ledger has no mirror in this file any more; the file need not be there."""
    mirror = Mirror(path=path.absolute())
    with ledger.read_transaction():  # lines that are missing come back
        pass
    with ledger.chain.write_transaction() as lines:
        if lines is None or mirror not in named_mirrors(lines)[0]:
            raise BadInput(f"Expected {mirror.path} to be a mirror that {ledger.chain.name} names.")
        _append_line(ledger, lines, Mirrored(path=str(mirror.path), dropped=True))
    with ledger.write_transaction():  # the other mirrors follow
        pass


def _append_line(ledger: MirroredChain, lines: Lines | None, body: Mirrored) -> None:
    if lines is None:
        raise LedgerDamaged(f"The ledger {ledger.chain.name} was taken away while its mirror was named.")
    append_body(lines, lines.account_names()[0], body)


def verify_entries(ledger: MirroredChain, ends: Sequence[End] = ()) -> int:
    """Walks the chain and returns its number of entries; also requires `ends`, which receipts remember.

    Raises `LedgerDamaged` for any entry that is altered, missing or moved, and for a balance that does not follow.
    """
    with ledger.read_transaction() as lines:
        count = 0 if lines is None else count_verified_entries(lines, ledger.chain.name)
        for end in ends:
            if end.entries and (lines is None or not lines.had_end(end)):
                raise LedgerDamaged(
                    f"The ledger {ledger.chain.name} does not have entry {end.entries} as a receipt remembers it: it "
                    "lost lines, or is another one. Put back the copy that has them, or set DPSWEEP_LEDGER to it."
                )
    return count


def count_verified_entries(lines: Lines, name: str) -> int:
    """The number of entries; checks that each is whole and that its balance follows from the entries before it."""
    balances: dict[str, tuple[Mapping[str, Any], Balance]] = {}
    last = None
    with turn_read_errors_into_refusal(f"the ledger {name}", LedgerDamaged):
        for expected, row in enumerate(lines.rows_after(), start=1):
            if not follows_line(row, last):
                raise LedgerDamaged(f"Entry {expected} of {name} is missing or was altered; nothing is charged on it.")
            last, entry = row, entry_from_row(row)
            known = balances.get(entry.account)
            if known is not None and entry.kind not in CHANGES and entry.balance == known[0]:
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
    return last["seq"] if last else 0
