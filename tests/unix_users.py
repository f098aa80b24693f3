"""A process that goes on as another Unix user, which needs no account."""

from __future__ import annotations

import os


def become(user: int, group: int, umask: int) -> None:
    """Goes on as this user, in a group of its own and one more, with the user's home as the place for its files."""
    os.setgroups([group])
    os.setgid(user)
    os.setuid(user)
    os.umask(umask)
