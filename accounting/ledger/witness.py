"""A witness of ledgers: a small register elsewhere, which a backup or a snapshot of this machine does not hold.

Whoever restores a machine restores its ledger, its private stores and its memory together, so they agree with one
another and cannot tell that charges were made and runs were launched since. A witness can: it is a file on another
disk, or a PostgreSQL server (`DPSWEEP_WITNESS`), and holds for each ledger, by its identity, the lines that come next.
It is moved by compare-and-swap, before these lines are committed (`accounting/ledger/witnessed_lines.py`). Invariants:

* A move succeeds only from the head that the mover saw: of two copies of one ledger only one goes on.
* The witness holds the announced lines themselves, so a command that was killed before its commit loses nothing, and it
  holds what a machine's memory holds at their end, so a restored ledger can be charged for all that it lost.
* It forgets no head: whether a ledger is an earlier state of the witnessed one can be proved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from filelock import FileLock, Timeout

from dpsweep.accounting.chain.databases import LOCK_SECONDS, Database, DatabaseSession, first_line_of_error
from dpsweep.accounting.chain.hash_chain import COLUMNS
from dpsweep.accounting.codec import Stored, StoredForm
from dpsweep.accounting.durable_files import write_compact_json
from dpsweep.accounting.errors import BadInput, WitnessUnreachable
from dpsweep.accounting.ledger.remembered_ends import Memory
from dpsweep.accounting.validation import (
    DAMAGE,
    count,
    exception_as_short_line,
    require_json_object,
    require_list,
    require_text,
)

VARIABLE = "DPSWEEP_WITNESS"
"""The environment variable that names the witness: a file, or a `postgresql+psycopg://` address."""


def _rows_from_json(name: str, form: Any) -> tuple[Mapping[str, Any], ...]:
    rows = tuple(require_json_object(name, row) for row in require_list(name, form))
    for row in rows:
        count("seq", row["seq"])
    if not rows:
        raise ValueError(f"Expected {name}=[] to have a line.")
    return tuple({key: require_text(key, row[key]) if key != "seq" else row[key] for key in COLUMNS} for row in rows)


@dataclass(frozen=True, kw_only=True)
class WitnessedState(Stored):
    """What a witness holds of one ledger.

    `head` is the digest of the last witnessed line that was announced, `rows` are the lines of the transaction that has
    it, `earlier` the heads before it, the oldest first, and `memory` is what a machine remembers at the end of `rows`.
    """

    head: str
    rows: Annotated[Sequence[Mapping[str, Any]], StoredForm(read=_rows_from_json, write=list)]
    earlier: tuple[str, ...]
    memory: Memory


class Witness(Protocol):
    """A register of states, by the identities of ledgers; raises `WitnessUnreachable` where it cannot answer."""

    @property
    def name(self) -> str:
        """The name in messages, without a password."""

    def read_state(self, identity: str) -> WitnessedState | None:
        """What the witness holds of a ledger; None if it knows nothing of it."""

    def replace_state_if_unchanged(self, identity: str, seen: str | None, later: WitnessedState) -> bool:
        """Replaces the state whose head is `seen`, None for none; False if another head is there."""


def witness_from_environment() -> Witness | None:
    """The witness that `DPSWEEP_WITNESS` names, None without one."""
    place = os.environ.get(VARIABLE)
    if not place:
        return None
    if "://" not in place:
        try:
            return FileWitness(path=Path(place).expanduser().absolute())
        except RuntimeError:
            raise BadInput(f"Expected {VARIABLE}={place} to be a file: no user here has this name.") from None
    from dpsweep.accounting.chain.postgres_server import PostgresServer

    return ServerWitness(server=PostgresServer(place, VARIABLE))


@dataclass(frozen=True, kw_only=True)
class FileWitness:
    """A file; put it on another disk than the ledger, one that is not restored together with it."""

    path: Path

    @property
    def name(self) -> str:
        """The file's path."""
        return str(self.path)

    def read_state(self, identity: str) -> WitnessedState | None:
        """What the file holds of a ledger."""
        with self._errors_as_unreachable():
            return self._read_states().get(identity)

    def replace_state_if_unchanged(self, identity: str, seen: str | None, later: WitnessedState) -> bool:
        """Replaces a state, under a lock, by a file that is flushed and renamed."""
        with self._errors_as_unreachable(), FileLock(f"{self.path}.lock", timeout=LOCK_SECONDS, mode=0o600):
            known = self._read_states()
            if (None if identity not in known else known[identity].head) != seen:
                return False
            form = {name: one.to_json() for name, one in (known | {identity: later}).items()}
            write_compact_json(self.path, form, mode=0o600)
        return True

    def _read_states(self) -> dict[str, WitnessedState]:
        if not self.path.exists():
            self.path.parent.stat()  # a disk that is not there is out of reach; a new file is empty
            return {}
        return {name: WitnessedState.from_json(form) for name, form in json.loads(self.path.read_text()).items()}

    @contextmanager
    def _errors_as_unreachable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, Timeout, *DAMAGE) as cause:
            reason = getattr(cause, "strerror", None) or exception_as_short_line(cause)
            raise WitnessUnreachable(_UNREACHABLE.format(name=self.name, reason=reason)) from cause


@dataclass(frozen=True, kw_only=True)
class ServerWitness:
    """A table of a PostgreSQL database; a move is one statement on one row, which waits for the one before it."""

    server: Database

    @property
    def name(self) -> str:
        """The address, without a password."""
        return self.server.name

    def read_state(self, identity: str) -> WitnessedState | None:
        """What the table holds of a ledger."""
        with self._database_session() as session:
            if not session.has_table(_TABLE):
                return None
            rows = session.run_statement(f"SELECT state FROM {_TABLE} WHERE identity = :identity", identity=identity)
            return None if not rows else WitnessedState.from_json(json.loads(rows[0]["state"]))

    def replace_state_if_unchanged(self, identity: str, seen: str | None, later: WitnessedState) -> bool:
        """Replaces a row with that head, or adds the first one."""
        values = {"identity": identity, "head": later.head, "state": json.dumps(later.to_json(), allow_nan=False)}
        with self._database_session() as session:
            if not session.has_table(_TABLE):
                session.begin_creating_tables()
                session.run_statement(
                    f"CREATE TABLE IF NOT EXISTS {_TABLE} "
                    "(identity TEXT PRIMARY KEY, head TEXT NOT NULL, state TEXT NOT NULL)"
                )
                session.commit()
            moved = (
                session.run_statement(_FIRST, **values)
                if seen is None
                else session.run_statement(_NEXT, **values, seen=seen)
            )
            session.commit()
            return bool(moved)

    @contextmanager
    def _database_session(self) -> Iterator[DatabaseSession]:
        errors: tuple[type[Exception], ...] = (*self.server.errors, *DAMAGE)
        try:
            with self.server.open_session() as session:
                yield session
        except errors as cause:
            raise WitnessUnreachable(_UNREACHABLE.format(name=self.name, reason=first_line_of_error(cause))) from cause


_TABLE = "dpsweep_witness"
_FIRST = (
    f"INSERT INTO {_TABLE} (identity, head, state) VALUES (:identity, :head, :state) "
    "ON CONFLICT DO NOTHING RETURNING head"
)
_NEXT = f"UPDATE {_TABLE} SET head = :head, state = :state WHERE identity = :identity AND head = :seen RETURNING head"
_UNREACHABLE = (
    "The witness {name} (DPSWEEP_WITNESS) cannot be asked: {reason}. Nothing is charged or launched without it."
)
