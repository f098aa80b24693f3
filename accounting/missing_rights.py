"""Whose a file is that this user may not use, and which command by whom gives the rights; for POSIX systems."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ADMINISTRATOR = 0
"""The user whose folders are the system's: no rights to them are asked for."""


def missing_rights_text(cause: BaseException | None, path: Path | None = None) -> str:
    """The sentence on a file that an error, or what caused it, was refused; empty without such a file."""
    while cause is not None and not (isinstance(cause, PermissionError) and (path or cause.filename)):
        cause = cause.__cause__
    if not isinstance(cause, PermissionError) or os.name != "posix":
        return ""
    return sentence_on_rights(path or Path(os.fsdecode(cause.filename)))


def sentence_on_rights(path: Path) -> str:
    """Who may use a file, and who can let this user do so."""
    import grp
    import pwd

    above = [one for one in (*reversed(Path(os.path.abspath(path)).parents), path) if os.path.lexists(one)]  # noqa: PTH100 - `..` and links stay
    place = next((one for one in above[:-1] if not os.access(one, os.X_OK)), above[-1])  # the outermost that is closed
    state = place.stat()
    user, owner = (_name_or_number(pwd.getpwuid, number) for number in (os.geteuid(), state.st_uid))
    group = _name_or_number(grp.getgrgid, state.st_gid)
    whose = f"{place} belongs to {owner} and group {group} with mode {stat.S_IMODE(state.st_mode):04o}"
    rights = f"+rw{'x' if place.is_dir() else ''} {shlex.quote(str(place))}"
    if state.st_uid == os.geteuid():
        give = f"give yourself the rights: chmod u{rights}"
    elif state.st_gid in (os.getegid(), *os.getgroups()) and state.st_uid != ADMINISTRATOR:
        give = f"{owner} can give rights: chmod g{rights}"
    else:
        give = "use a place of your own, or a folder of a group of yours (docs/scaling.md)"
    absent = os.access(place, os.X_OK) and not os.path.lexists(path)
    return f"{whose}, which keeps {user} {f'from making {path}' if absent else 'out'}; {give}."


def _name_or_number(entry: Callable[[int], Sequence[Any]], number: int) -> str:
    with suppress(KeyError):
        return str(entry(number)[0])
    return str(number)
