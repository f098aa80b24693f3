"""A PostgreSQL with passwords and a PgBouncer in transaction mode before it, both on loopback, which can be crashed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.databases import programs
from tests.engines.slurm_site import free_ports

DATABASE, ROLE = "books", "sweeps"
POOLER = """[databases]
{database} = host=127.0.0.1 port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {pool}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {root}/users
pool_mode = transaction
default_pool_size = {size}
server_login_retry = 1
query_wait_timeout = 10
"""


@dataclass(frozen=True, kw_only=True)
class Servers:
    """A server and its pooler that run; `environment` leads PostgreSQL's clients to them, by a file of passwords."""

    root: Path
    port: int
    pool: int
    password: str
    owner: dict[str, Any]
    environment: dict[str, str]

    def address(self, port: int) -> str:
        """What a ledger is told, of the server or of its pooler by the port."""
        return f"postgresql+psycopg://{ROLE}@127.0.0.1:{port}/{DATABASE}"

    def start(self) -> None:
        self._control("start", "-w", "-o", f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.root} -c fsync=off")

    def start_again(self) -> None:
        """Starts the server, and waits until the pooler has noticed."""
        self.start()
        _wait_for_pooler(self)

    def crash(self) -> None:
        """Ends the server with all connections, as its machine's reset does; what was committed is on the disk."""
        self._control("stop", "-m", "immediate")

    def sql(self, statement: str, database: str = "postgres") -> None:
        command = [
            "psql",
            "-h",
            str(self.root),
            "-p",
            str(self.port),
            "-U",
            "postgres",
            "-d",
            database,
            "-c",
            statement,
        ]
        subprocess.run(command, env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def _control(self, *words: str) -> None:
        command = [_programs() / "pg_ctl", "-D", self.root / "data", "-l", self.root / "log", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.root, **self.owner)


def reason_why_not() -> str:
    """Why this machine cannot run them; empty if it can."""
    if programs() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    return "" if shutil.which("pgbouncer") else "PgBouncer is not installed: apt-get install pgbouncer"


@contextmanager
def servers_running(pool_size: int = 4) -> Iterator[Servers]:
    """Both in a temporary folder, as `nobody` where we are root; the role has a password and owns the database."""
    root, (port, pool), password = Path(tempfile.mkdtemp(prefix="pg")), free_ports(2), "chosen-for-this-test"
    nobody = pwd.getpwnam("nobody")
    owner = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    passwords, settings = root / "pgpass", root / "pool.ini"
    passwords.write_text(f"*:*:*:postgres:{password}\n*:*:*:{ROLE}:{password}\n")
    passwords.chmod(0o600)
    (root / "password").write_text(password)
    (root / "users").write_text(f'"{ROLE}" "{password}"\n')
    settings.write_text(POOLER.format(database=DATABASE, port=port, pool=pool, root=root, size=pool_size))
    for path in (root, root / "password", root / "users", settings):
        if owner:
            shutil.chown(path, "nobody")
    made = ["--auth=scram-sha-256", f"--pwfile={root}/password", "--no-sync", "--username=postgres", "--locale=C"]
    made += ["--encoding=UTF8", "-D", root / "data"]
    subprocess.run([_programs() / "initdb", *made], check=True, stdout=subprocess.DEVNULL, cwd=root, **owner)
    environment = {**os.environ, "PGPASSFILE": str(passwords)}
    servers = Servers(root=root, port=port, pool=pool, password=password, owner=owner, environment=environment)
    servers.start()
    command = ["pgbouncer", "-q", str(settings)]
    with (root / "pool.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log, **owner) as pooler:
        try:
            servers.sql(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{password}'")
            servers.sql(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
            _wait_for_pooler(servers)
            yield servers
        finally:
            pooler.send_signal(signal.SIGKILL)
            with suppress(subprocess.CalledProcessError):
                servers.crash()
            shutil.rmtree(root, ignore_errors=True)


def _programs() -> Path:
    folder = programs()
    assert folder is not None
    return folder


def _wait_for_pooler(servers: Servers) -> None:
    command = ["psql", "-h", "127.0.0.1", "-p", str(servers.pool), "-U", ROLE, "-d", DATABASE, "-c", "SELECT 1"]
    deadline = time.monotonic() + 60
    while subprocess.run(command, env=servers.environment, capture_output=True).returncode:
        assert time.monotonic() < deadline, "PgBouncer did not start"
        time.sleep(0.2)
