"""A process that goes on as another Unix user, which needs no account."""

from __future__ import annotations

import codecs
import os


def become(user: int, group: int, umask: int) -> None:
    """Goes on as this user, in a group of its own and one more."""
    codecs.lookup("unicode-escape")  # the template's lexer needs it, and Python may lie where this user cannot read
    os.setgroups([group])
    os.setgid(user)
    os.setuid(user)
    os.umask(umask)
