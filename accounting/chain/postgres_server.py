"""A ledger on a PostgreSQL server, which several machines use; version 11 or later.

Connections are not pooled: a forked worker shares none, and each lock has a connection of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from dpsweep.accounting.chain import sqlite_file
from dpsweep.accounting.chain.sqlite_file import ROLE
from dpsweep.accounting.errors import BadInput, LedgerDamaged

_FAULTS = {  # what an error says of a ledger, by its SQLSTATE or the class of it
    # a failed login, missing rights, a copy that is for reading alone
    **dict.fromkeys(("28", "42501", "25006"), sqlite_file.REFUSED),
    # no connection left, a lock that was waited for, a conflict
    **dict.fromkeys(("53", "55P03", "40"), sqlite_file.BUSY),
    # the server went away; a pooler between that shares connections in a way that dpsweep cannot use
    **dict.fromkeys(("57", "08", "26000", "42P05"), sqlite_file.OUT_OF_REACH),
}
RESTART_SECONDS = 20.0  # how long a command waits for a server that has answered it before: a crash takes seconds

# the database by what it says of itself, the same through every address, tunnel and role
_DATABASE = sa.text(
    "SELECT format('database %s, schema %s, of PostgreSQL cluster %s', current_database(), current_schema(), "
    "system_identifier) FROM pg_control_system()"
)


class PostgresServer:
    """A database at a `postgresql+psycopg://` address; raises `BadInput` for any other address."""

    file = None
    errors = (sa.exc.DBAPIError,)
    refusals = (
        "CREATE OR REPLACE FUNCTION entries_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$",
        "CREATE TRIGGER entries_refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION entries_refuse()",
        "CREATE OR REPLACE FUNCTION entries_refuse_insert() RETURNS trigger LANGUAGE plpgsql "
        "SET search_path FROM CURRENT AS $$ BEGIN "
        "PERFORM pg_advisory_xact_lock('pg_class'::regclass::int, TG_RELID::int); "  # as writers do
        "IF NEW.seq IS DISTINCT FROM (SELECT coalesce(max(seq), 0) + 1 FROM entries) THEN "
        "RAISE EXCEPTION 'the ledger is append-only'; END IF; "
        f"IF NEW.who IS DISTINCT FROM '{ROLE}' || session_user AND session_user IS DISTINCT FROM "  # the owner restores
        "(SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = TG_RELID) THEN "
        "RAISE EXCEPTION 'the writer of a line is the role that adds it'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER entries_refuse_insert BEFORE INSERT ON entries "
        "FOR EACH ROW EXECUTE FUNCTION entries_refuse_insert()",
    )

    def __init__(self, address: str) -> None:
        try:
            url = sa.make_url(address)
            if url.get_backend_name() != "postgresql":
                raise ValueError
        except (sa.exc.ArgumentError, ValueError):
            kind = address.partition("://")[0]
            raise BadInput(
                f"Expected DPSWEEP_LEDGER={kind}://... to be a file or an address: postgresql+psycopg://USER@HOST/NAME."
            ) from None
        url = url.set(drivername="postgresql+psycopg")
        shown = {key: value for key, value in url.query.items() if key in ("host", "port", "service", "options")}
        self.name = url.set(query=shown).render_as_string(hide_password=True)
        self._address = url.set(query=shown)._replace(username=None, password=None).render_as_string()
        self._has_answered = False
        try:
            # a pooler may give each transaction another connection, which knows no prepared statement of ours
            options = {"connect_timeout": 10, "prepare_threshold": None}
            self._engine = sa.create_engine(
                url, isolation_level="READ COMMITTED", poolclass=sa.pool.NullPool, connect_args=options
            )
        except ImportError as cause:
            raise LedgerDamaged(
                f"The ledger {self.name} cannot be reached without a driver: pip install 'dpsweep[postgres]'"
            ) from cause

    @cached_property
    def places(self) -> tuple[str, ...]:
        """The address, for any role, and the database that answers there, if it may say which one it is."""
        with self._engine.connect() as connection, suppress(sa.exc.ProgrammingError):  # the identifier may be withheld
            return self._address, connection.execute(_DATABASE).scalar_one()
        return (self._address,)

    @contextmanager
    def open_session(self) -> Iterator[PostgresSession]:
        """A new connection; a server that has answered before has `RESTART_SECONDS` to come back from a crash."""
        until = time.monotonic() + RESTART_SECONDS if self._has_answered else 0.0
        while True:
            try:
                connection = self._engine.connect()
                break
            except sa.exc.OperationalError:
                if time.monotonic() >= until:
                    raise
                time.sleep(RESTART_SECONDS / 100)
        self._has_answered = True
        try:
            yield PostgresSession(connection)
        finally:
            with suppress(sa.exc.DBAPIError):  # the server went away, and the transaction with it
                connection.close()

    def fault(self, cause: Exception) -> str:
        """What an error says of the ledger, by its SQLSTATE; an error without any is one of the connection."""
        state = getattr(getattr(cause, "orig", None), "sqlstate", None) or ""
        otherwise = sqlite_file.OUT_OF_REACH if isinstance(cause, sa.exc.OperationalError) else sqlite_file.DAMAGED
        return _FAULTS.get(state) or _FAULTS.get(state[:2]) or otherwise


@dataclass(frozen=True)
class PostgresSession:
    """A connection to a server."""

    connection: sa.Connection

    def run(self, statement: str, **values: str | float) -> Sequence[Mapping[str, Any]]:
        """Runs a statement with its values (`:name`) and returns its rows; one without values is passed on as it is."""
        connection = self.connection
        result = connection.execute(sa.text(statement), values) if values else connection.exec_driver_sql(statement)
        return [dict(row) for row in result.mappings()] if result.returns_rows else ()

    def writer(self) -> str:
        """The role that logged in; `SET ROLE` does not change it."""
        return f"{ROLE}{self.run('SELECT session_user AS role')[0]['role']}"

    def has_tables(self) -> bool:
        """Whether the tables exist; called outside a transaction."""
        exists = self.run("SELECT to_regclass('schema') IS NOT NULL AS found")[0]["found"]
        self.connection.rollback()
        return bool(exists)

    def begin_creating(self) -> None:
        """Begins the transaction that creates the tables; it sees those of another process after the lock."""
        self.run("SELECT pg_advisory_xact_lock(hashtext('dpsweep schema'))")

    def begin_writing(self) -> None:
        """Takes the ledger's advisory lock before the first read, which needs no right to a table.

        Statements after it see what the writer before has committed: each has a view of its own.
        """
        self.run("SET LOCAL synchronous_commit = on")  # a role or a database may have it off
        self.run(f"SET LOCAL lock_timeout = {round(sqlite_file.LOCK_SECONDS * 1000)}")
        self.run("SELECT pg_advisory_xact_lock('pg_class'::regclass::int, 'entries'::regclass::int)")

    def begin_reading(self) -> None:
        """Begins a transaction with one consistent view."""
        self.connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def commit(self) -> None:
        """Commits the transaction: it is on the disk when this returns."""
        self.connection.commit()
