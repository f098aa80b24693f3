"""Where a ledger may lie: a file, or a private PostgreSQL server that is gone with the process that started it."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import wait

_SERVE = """
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c max_connections="$3" >"$2/log" 2>&1 &
cat >/dev/null
kill -QUIT $!
wait
rm -rf "$2"
"""
"""Serves until our end of its standard input is closed, by whatever death of ours."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What the ledger is told, a connection of one's own that goes round it, and what takes its triggers away.

    `mark` stands for a value in a statement.
    """

    address: str
    connect: Callable[[], Any]
    unguard: tuple[str, ...]
    mark: str

    def run(self, *statements: str) -> None:
        """Does what a ledger never does."""
        with closing(self.connect()) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def tamper(self, *statements: str) -> None:
        """The same behind the triggers' back."""
        self.run(*self.unguard, *statements)


def in_file(path: Path) -> Place:
    """A place for a SQLite ledger."""
    triggers = ("entries_refuse_update", "entries_refuse_delete", "entries_refuse_insert")
    return Place(
        address=str(path),
        connect=lambda: sqlite3.connect(path),
        unguard=tuple(f"DROP TRIGGER IF EXISTS {trigger}" for trigger in triggers),
        mark="?",
    )


@dataclass(frozen=True)
class Server:
    """A running server. All of its roles come in without a password but one, `guarded`, which a test must create."""

    folder: Path
    numbers: Iterator[int]

    def connect(self, schema: str = "public", user: str = "postgres") -> Any:
        """A connection that commits every statement by itself."""
        import psycopg

        options = f"-csearch_path={schema}"
        return psycopg.connect(host=str(self.folder), user=user, dbname="postgres", options=options, autocommit=True)

    def address(self, schema: str = "public", user: str = "postgres", database: str = "postgres") -> str:
        """What a ledger in this schema is told."""
        return f"postgresql+psycopg://{user}@/{database}?host={self.folder}&options=-csearch_path%3D{schema}"

    def place(self) -> Place:
        """A fresh schema, which costs less than a fresh database."""
        schema = f"books{next(self.numbers)}"
        with closing(self.connect()) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        return Place(
            address=self.address(schema),
            connect=lambda: self.connect(schema),
            unguard=("ALTER TABLE entries DISABLE TRIGGER ALL",),
            mark="%s",
        )


def programs() -> Path | None:
    """The folder of PostgreSQL's programs, None where they are not installed."""
    found = [Path(on_path).resolve().parent for on_path in [shutil.which("postgres")] if on_path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: -float(folder.parent.name))
    return next((folder for folder in found if (folder / "initdb").exists()), None)


@contextmanager
def served(programs: Path, connections: int = 40) -> Iterator[Server]:
    """A server in a temporary folder, reached by a unix socket only; as `nobody` where we are root, as it insists."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    other: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        other = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    made = ["--auth=trust", "--no-sync", "--username=postgres", "--encoding=UTF8", "--locale=C"]
    subprocess.run(
        [programs / "initdb", "-D", folder / "data", *made], check=True, stdout=subprocess.DEVNULL, cwd=folder, **other
    )
    (folder / "data" / "pg_hba.conf").write_text("local all guarded scram-sha-256\nlocal all all trust\n")
    shell = ["sh", "-c", _SERVE, "sh", str(programs), str(folder), str(connections)]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, cwd=folder, start_new_session=True, **other):
        server = Server(folder, itertools.count())
        wait(lambda: _answers(server), "an answer of the server")
        yield server


@contextmanager
def pooled(server: Server, user: str) -> Iterator[str]:
    """The address, for this role, of a PgBouncer that gives each transaction one of two connections."""
    folder = Path(tempfile.mkdtemp(prefix="pool"))
    settings = {"listen_addr": "", "unix_socket_dir": folder, "auth_type": "trust", "auth_file": folder / "users"}
    settings |= {"pool_mode": "transaction", "default_pool_size": 2, "logfile": folder / "log"}
    lines = ["[databases]", f"postgres = host={server.folder}", "[pgbouncer]"]
    lines += [f"{name} = {value}" for name, value in settings.items()]
    (folder / "users").write_text(f'"{user}" ""\n')
    (folder / "pool.ini").write_text("\n".join(lines))
    owner = {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}
    if owner:
        shutil.chown(folder, "nobody")
    address = f"postgresql+psycopg://{user}@/postgres?host={folder}&port=6432"
    try:
        with subprocess.Popen(["pgbouncer", "-q", folder / "pool.ini"], stdin=subprocess.DEVNULL, **owner) as pooler:
            try:
                wait((folder / ".s.PGSQL.6432").exists, "the pooler's socket")
                yield address
            finally:
                pooler.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(server: Server) -> bool:
    import psycopg

    try:
        server.connect().close()
    except psycopg.OperationalError:
        return False
    return True
