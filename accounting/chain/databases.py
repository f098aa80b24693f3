"""What the two databases that store a ledger have in common: a SQLite file and a PostgreSQL server.

Both have the same methods (`accounting/chain/storage.py` calls them). A SQLite file is read by Python's own library
(`accounting/chain/sqlite_file.py`): to import SQLAlchemy takes a seventh of the time of `import torch`, in every
command. Only a server needs it (`accounting/chain/postgres_server.py`).
"""

from __future__ import annotations

LOCK_SECONDS = 60
"""The time that a writer waits for the lock."""

Value = str | float

DAMAGED = "is no readable ledger: {}."
OUT_OF_REACH = "cannot be written or read: {}."
BUSY = "is in use by another process, and is whole: {}. The same command goes on."
REFUSED = "may not be written or read by this user: {}. The ledger is whole; its owner can grant the rights."
"""What an error says of a ledger, with the database's own message."""


def first_line_of_error(cause: Exception) -> str:
    """The first line of a database's own message, without a full stop."""
    return str(getattr(cause, "orig", cause)).strip().splitlines()[0].rstrip(".")
