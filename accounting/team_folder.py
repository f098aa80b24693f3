"""Folders that several Unix users of one group work in, and sentences about rights that are missing.

`DPSWEEP_GROUP` names such a folder (docs/scaling.md makes one). What dpsweep creates below it gives the group the
rights that elsewhere the owner alone has: folders 0770 in place of 0700, files 0660 in place of 0600. Invariants:

* The variable is each user's own, so that no other user's file or mode opens anything to a group.
* Rights are given as a path is created, never to one that is there: another member may have put a link in its place.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

GROUP_VARIABLE = "DPSWEEP_GROUP"
"""The environment variable that names a folder of a group."""

ADMINISTRATOR = 0
"""The user whose folders are the system's: no rights to them are asked for."""


def mode_with_group(path: Path, mode: int = 0o600) -> int:
    """The mode of a new file or folder, less the umask: below a group's folder the group has the owner's rights.

    >>> oct(mode_with_group(Path("/nowhere/key"), 0o600))
    '0o600'
    """
    folder = os.environ.get(GROUP_VARIABLE)
    if not folder or not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        return mode
    return mode | (mode & stat.S_IRWXU) >> 3


def access_failure_text(cause: OSError, path: Path | None = None) -> str:
    """Why a file cannot be used, without a full stop: for missing rights whose it is and who can give them."""
    place = path or (Path(os.fsdecode(cause.filename)) if cause.filename else None)
    if not isinstance(cause, PermissionError) or place is None or os.name != "posix":
        return cause.strerror or str(cause)
    return missing_rights_text(place)


def missing_rights_text(path: Path) -> str:
    """Whose a file is that this user may not use, and which command by whom gives the rights; for POSIX systems."""
    import grp
    import pwd

    place = _first_closed_path(Path(os.path.abspath(path)))  # noqa: PTH100 - `..` and links stay as named
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
    return f"{whose}, which keeps {user} {f'from making {path}' if absent else 'out'}; {give}"


def _first_closed_path(path: Path) -> Path:
    """The outermost part of a path that this user may not use, or the nearest one that exists."""
    above = [one for one in (*reversed(path.parents), path) if os.path.lexists(one)]
    return next((one for one in above[:-1] if not os.access(one, os.X_OK)), above[-1])


def _name_or_number(entry: Callable[[int], Sequence[Any]], number: int) -> str:
    """The name of a user or group by the system's list of them, the number where none is known."""
    with suppress(KeyError):
        return str(entry(number)[0])
    return str(number)
