"""What a person does for a ledger: budgets, costs from outside and mirrors go on the record, and its chain is walked.

The ledger itself needs none of it: it brings lines back from its mirrors (`accounting/ledger/mirror.py`).
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dpsweep.accounting.chain.hash_chain import Chain, End, Entry, Lines, entry_from_row, follows_line
from dpsweep.accounting.chain.sqlite_file import ROLE
from dpsweep.accounting.durable_files import user_folder
from dpsweep.accounting.errors import BadInput, LedgerDamaged, turn_read_errors_into_refusal
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import (
    SPENDING,
    Balance,
    Closed,
    Mirrored,
    Opened,
    Raised,
    SpentOutside,
    Statement,
    append_body,
    read_body,
)
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.mirror import Mirror, MirroredChain, named_mirrors, own_mirror

CHANGES = (Opened.kind, Raised.kind, Closed.kind, *SPENDING)
"""Kinds of entries that change the balance."""

_LOCK_HOLDER = (
    "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND "
    "granted AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint = (:key >> 32) & 4294967295 AND objid::bigint = :key & 4294967295"
)


def user_ledger_place() -> str:
    """`DPSWEEP_LEDGER`, or a file in the user's data directory."""
    return os.environ.get("DPSWEEP_LEDGER") or str(user_folder("data") / "ledger.sqlite")


def writer_text(entry: Entry) -> str:
    """The writer, and what vouches for the name: a database server, or what the writer's machine said."""
    return entry.who if entry.who.startswith(ROLE) else f"{entry.who} (self-declared)"


def raise_budget(ledger: Ledger, account: str, budget: Guarantee) -> Statement:
    """Records a higher budget. Refuses a lower one, other neighbours, or a closed account."""
    with ledger.transaction(account) as (_, balance, append):
        balance.require_same_neighbours(account, budget)
        _require_not_closed(account, balance)
        now = balance.budget
        if not now.is_within_budget(budget) or now == budget or budget.promises_nothing:
            raise BadInput(
                f"The budget of {account} is epsilon {now.epsilon}, delta {now.delta} already, and is "
                "never lowered; say budget.epsilon= something larger."
            )
        append(Raised(budget=budget))
    return ledger.statement(account)


def close_account(ledger: Ledger, account: str) -> Statement:
    """Closes the account for ever: later charges are refused. Trials that were charged may still finish."""
    with ledger.transaction(account) as (_, balance, append):
        _require_not_closed(account, balance)
        append(Closed())
    return ledger.statement(account)


def _require_not_closed(account: str, balance: Balance) -> None:
    if balance.closed:
        raise BadInput(f"Expected account={account} to be open; it was closed.")


def charge_outside(ledger: Ledger, account: str, cost: Guarantee, note: str) -> Statement:
    """Records a cost on these data outside this tool. It has already happened, so it is never refused."""
    if cost.promises_nothing:
        raise BadInput(f"Expected epsilon={cost.epsilon} to be finite.")
    with ledger.transaction(account) as (_, balance, append):
        balance.require_same_neighbours(account, cost)
        takes = balance.policy.amounts_of_charge(cost, None)
        append(SpentOutside(epsilon=cost.epsilon, delta=cost.delta, takes=takes, note=note))
    return ledger.statement(account)


@contextmanager
def server_lock(chain: Chain, name: str, what: str) -> Iterator[None]:
    """Holds the lock of this name on a ledger's server; raises `BadInput` if a process holds it that runs `what`.

    The lock is of an open transaction, so it ends with this process and with its connection, and holds behind a pooler,
    which leaves a connection to its client until then. A ledger in a file has none: raises ValueError.
    """
    if chain.file is not None:
        raise ValueError(f"Expected ledger={chain.name} to be a database on a server.")
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with ExitStack() as stack:
        with chain.errors_as_damage():
            opened: AbstractContextManager[Any] = chain.database.open_session()
            session = stack.enter_context(opened)
            session.run("SET LOCAL idle_in_transaction_session_timeout = 0")
            own = f"process {os.getpid()} on {socket.gethostname()}"
            session.run("SELECT set_config('application_name', :name, true)", name=own)  # until the transaction's end
            locked = session.run("SELECT pg_try_advisory_xact_lock(:key) AS locked", key=key)[0]["locked"]
            holders = () if locked else session.run(_LOCK_HOLDER, key=key)
        if not locked:
            holder = holders[0]["application_name"] if holders else ""
            raise BadInput(f"{what} is being run by {holder or 'another process'}; nothing was started.")
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
