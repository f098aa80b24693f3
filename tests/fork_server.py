"""The one server from which the tests fork processes: multiprocessing has one for a whole process, with one preload."""

from __future__ import annotations

from contextlib import chdir
from multiprocessing import forkserver, get_context
from pathlib import Path

PRELOAD = "tests.preload"
ROOT = Path(__file__).resolve().parents[1]

SERVER = get_context("forkserver")
SERVER.set_forkserver_preload([PRELOAD, "sqlalchemy.dialects.postgresql.psycopg"])


def start_server() -> None:
    """Starts the server, unless it runs; before the first process is started from it, wherever that may be.

    The server finds what it preloads in its working folder, and says nothing if that is elsewhere.
    """
    with chdir(ROOT):
        forkserver.ensure_running()
