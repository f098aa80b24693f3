"""A ledger on a PostgreSQL server, which several machines use; version 11 or later.

Connections are not pooled: a forked worker shares none, and each lock has a connection of its own.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import MappingProxyType

import sqlalchemy as sa

from dpsweep.accounting.chain import databases
from dpsweep.accounting.chain.databases import DatabaseSession, Value, first_line_of_error
from dpsweep.accounting.chain.hash_chain import ROLE, Row
from dpsweep.accounting.errors import BadInput, LedgerDamaged

CONNECT_SECONDS = 10

_FAULTS: Mapping[str, str] = MappingProxyType(
    {
        # a failed login, missing rights, a copy that is for reading alone
        **dict.fromkeys(("28", "42501", "25006"), databases.REFUSED),
        **dict.fromkeys(("53300", "53"), "has no room for another connection now, and is whole: {}."),
        **dict.fromkeys(("55P03", "40"), databases.BUSY),
        **dict.fromkeys(("57", "08"), "cannot be written or read, because its server went away: {}."),
        **dict.fromkeys(
            ("26000", "42P05", "08P01"),
            "cannot be written or read, and is whole: {}. A pooler between does not reach the server, or shares "
            "connections in a way that dpsweep cannot use; then set the server's own address.",
        ),
    }
)
"""What an error says of a ledger, by its SQLSTATE or the class of it: refused, full, busy, out of reach, a pooler."""

RESTART_SECONDS = 20.0
"""How long a command waits for a server that has answered it before; the start of one after a crash takes seconds."""

_DATABASE = sa.text(
    "SELECT system_identifier AS cluster, current_database() AS name, current_schema() AS part FROM pg_control_system()"
)
"""The database by what it says of itself, the same through every address, tunnel and role."""

_SHOWN = ("host", "port", "service", "options")
"""The parameters of an address that identify the ledger and are not secret."""


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

    def __init__(self, address: str, variable: str = "DPSWEEP_LEDGER") -> None:
        url = _parse_postgres_address(address, variable)
        self._url = url.set(drivername="postgresql+psycopg")
        shown = {key: value for key, value in url.query.items() if key in _SHOWN}
        self.name = self._url.set(query=shown).render_as_string(hide_password=True)
        self._engine = self._new_engine()
        self._places: tuple[str, ...] = ()
        self._has_answered = False

    @property
    def places(self) -> tuple[str, ...]:
        """The address, for any role, and the database that answers there, if it may say which one it is."""
        if not self._places:
            shown = {key: value for key, value in self._url.query.items() if key in _SHOWN}
            address = self._url.set(query=shown, username=None, password=None).render_as_string()
            self._places = (address, *self._database_identity_texts())
        return self._places

    def _database_identity_texts(self) -> tuple[str, ...]:
        with self._engine.connect() as connection:
            try:
                found = connection.execute(_DATABASE).mappings().one()
            except sa.exc.ProgrammingError:  # a server may keep its identifier from this role
                return ()
        return (f"database {found['name']}, schema {found['part']}, of PostgreSQL cluster {found['cluster']}",)

    @contextmanager
    def open_session(self) -> Iterator[DatabaseSession]:
        """A new connection; a server that has answered before has `RESTART_SECONDS` to come back from a crash."""
        until = time.monotonic() + RESTART_SECONDS if self._has_answered else 0.0
        while (connection := self._connection_or_none(until)) is None:
            time.sleep(RESTART_SECONDS / 100)
        self._has_answered = True
        with connection:
            yield PostgresSession(connection)

    def _connection_or_none(self, until: float) -> sa.Connection | None:
        try:
            return self._engine.connect()
        except sa.exc.OperationalError:
            if time.monotonic() < until:
                return None
            raise

    def describe_error(self, cause: Exception) -> str:
        """What the error says of the ledger, by its SQLSTATE; an error without any is one of the connection."""
        state = getattr(getattr(cause, "orig", None), "sqlstate", None) or ""
        otherwise = databases.OUT_OF_REACH if isinstance(cause, sa.exc.OperationalError) else databases.DAMAGED
        fault = _FAULTS.get(state) or _FAULTS.get(state[:2]) or otherwise
        return fault.format(first_line_of_error(cause))

    def storage_exists(self) -> bool:
        """True: a server says so itself."""
        return True

    def create_storage(self) -> None:
        """Nothing: the database exists."""

    def refuse_change_while_reading(self) -> AbstractContextManager[None]:
        """Nothing: transactions see one state."""
        return nullcontext()

    @contextmanager
    def hold_lock_or_yield_holder(self, key: int) -> Iterator[str | None]:
        """Holds an advisory lock of an open transaction; it ends with this process and with its connection.

        A pooler leaves a connection to its client until the end of a transaction, so the lock holds behind one too.
        """
        connection = self._engine.connect()
        try:
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
            _set_application_name(connection)
            locked = connection.execute(sa.select(sa.func.pg_try_advisory_xact_lock(key))).scalar()
            yield None if locked else _lock_holder(connection, key)
        finally:
            with suppress(sa.exc.DBAPIError):  # the server went away, and the lock with it
                connection.close()

    def _new_engine(self) -> sa.Engine:
        try:
            return sa.create_engine(
                self._url,
                isolation_level="READ COMMITTED",
                poolclass=sa.pool.NullPool,
                # a pooler may give each transaction another connection, which knows no prepared statement of ours
                connect_args={"connect_timeout": CONNECT_SECONDS, "prepare_threshold": None},
            )
        except ImportError as cause:
            raise LedgerDamaged(
                f"The ledger {self.name} cannot be reached without a driver: pip install 'dpsweep[postgres]'"
            ) from cause


class PostgresSession:
    """A connection to a server."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def run_statement(self, statement: str, **values: Value) -> Sequence[Row]:
        """Runs a statement and returns its rows; one without values is passed on as it is."""
        connection = self._connection
        result = connection.execute(sa.text(statement), values) if values else connection.exec_driver_sql(statement)
        return result.mappings().all() if result.returns_rows else ()

    def writer_role(self) -> str:
        """The role that logged in; `SET ROLE` does not change it."""
        return str(self.run_statement("SELECT session_user AS role")[0]["role"])

    def has_table(self, name: str) -> bool:
        """Whether a table exists."""
        exists = sa.inspect(self._connection).has_table(name)
        self._connection.rollback()
        return exists

    def begin_creating_tables(self) -> None:
        """Lets one process at a time create the tables; it sees those of others after the lock."""
        self.run_statement("SELECT pg_advisory_xact_lock(hashtext('dpsweep schema'))")

    def begin_writing(self) -> None:
        """Takes the ledger's advisory lock before the first read, which needs no right to a table.

        Statements after it see what the writer before has committed: each has a view of its own.
        """
        self.run_statement(f"SET LOCAL lock_timeout = {round(databases.LOCK_SECONDS * 1000)}")
        self.run_statement("SELECT pg_advisory_xact_lock('pg_class'::regclass::int, 'entries'::regclass::int)")

    def begin_reading(self) -> None:
        """Begins a transaction with one consistent view."""
        self._connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def commit(self) -> None:
        """Commits the transaction."""
        self._connection.commit()

    def rollback(self) -> None:
        """Ends the transaction without its changes."""
        self._connection.rollback()


def _parse_postgres_address(address: str, variable: str) -> sa.URL:
    form = "postgresql+psycopg://USER@HOST/NAME"
    try:
        url = sa.make_url(address)
    except (sa.exc.ArgumentError, ValueError):
        raise BadInput(f"Expected {variable} to be a file or an address: {form}.") from None
    if url.get_backend_name() != "postgresql":
        raise BadInput(f"Expected {variable}={url.drivername}://... to be a file or an address: {form}.")
    return url


def _set_application_name(connection: sa.Connection) -> None:
    """Names this process to other connections, until the end of the transaction."""
    name = f"dpsweep, process {os.getpid()} on {socket.gethostname()}"
    connection.execute(sa.select(sa.func.set_config("application_name", name, True)))


def _lock_holder(connection: sa.Connection, key: int) -> str:
    """The process that holds the advisory lock `key`, as its connection named itself."""
    query = sa.text(
        "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND "
        "granted AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND classid::bigint = (:key >> 32) & 4294967295 AND objid::bigint = :key & 4294967295"
    )
    name = connection.execute(query, {"key": key}).scalar()
    return str(name).removeprefix("dpsweep, ") if name else "another process"
