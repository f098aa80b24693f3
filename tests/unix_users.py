"""A process that goes on as another Unix user, which needs no account."""

from __future__ import annotations

import codecs
import encodings
import importlib
import os
import pkgutil
from contextlib import suppress


def become(user: int, group: int, umask: int) -> None:
    """Goes on as this user, in a group of its own and one more."""
    # Python may lie where this user cannot read
    with suppress(ImportError):
        importlib.import_module("sqlalchemy.dialects.postgresql.psycopg")
        importlib.import_module("psycopg")
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(LookupError, ImportError):
            codecs.lookup(module.name)
    os.setgroups([group])
    os.setgid(user)
    os.setuid(user)
    os.umask(umask)
