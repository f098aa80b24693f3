"""Folders that several Unix users of one group work in, and sentences about rights that are missing.

`dpsweep team` makes such a folder and marks it by a file. Whatever dpsweep creates below it belongs to the folder's
group, which gets the rights that elsewhere the owner alone has: folders 2770 in place of 0700, files 0660 in place of
0600. All others get none. Invariants:

* The mark counts only in a folder with the set-group-ID bit that others cannot write. A folder without it, whatever its
  mode, stays its owner's: rights of a group are given by the command, never inherited by accident.
* A process that works below such a folder clears the group's bits in its umask, and sets those of others, when it first
  looks: files that libraries create there are the group's too, and nothing that it creates afterwards is for others.
"""

from __future__ import annotations

import os
import shlex
import stat
from functools import cache
from pathlib import Path

TEAM_FILE = "team.json"
"""The file that marks a team's folder."""

TEAM_UMASK = 0o007
ADMINISTRATOR = 0
"""The user whose folders are the system's: no rights to them are asked for."""

READABLE_BY_GROUP = 0o640


def team_folder_above(path: Path) -> Path | None:
    """The team's folder that a path lies in, None if it lies in none."""
    return _team_folder_at_or_above(Path(os.path.abspath(path)).parent)  # noqa: PTH100 - `..` and links stay as named


def mode_with_group(path: Path, mode: int = 0o600) -> int:
    """The mode of a new file or folder: in a team's folder the group has the owner's rights.

    >>> oct(mode_with_group(Path("/nowhere/key"), 0o600))
    '0o600'
    """
    return mode if team_folder_above(path) is None else mode | (mode & stat.S_IRWXU) >> 3


@cache
def _team_folder_at_or_above(folder: Path) -> Path | None:
    if is_team_folder(folder):
        os.umask(os.umask(TEAM_UMASK) & ~stat.S_IRWXG | TEAM_UMASK)
        return folder
    return None if folder == folder.parent else _team_folder_at_or_above(folder.parent)


def is_team_folder(folder: Path) -> bool:
    """Whether a folder is marked as a team's, and no one else can write to it."""
    try:
        mode = folder.stat().st_mode
        return bool(mode & stat.S_ISGID) and not mode & stat.S_IWOTH and (folder / TEAM_FILE).is_file()
    except OSError:
        return False


def forget_team_folders() -> None:
    """Has this process look again which folders are a team's."""
    _team_folder_at_or_above.cache_clear()


def access_failure_text(cause: OSError, path: Path | None = None) -> str:
    """Why a file cannot be used, without a full stop: for missing rights whose it is and who can give them."""
    place = path or (Path(os.fsdecode(cause.filename)) if cause.filename else None)
    if not isinstance(cause, PermissionError) or place is None or os.name != "posix":
        return cause.strerror or str(cause)
    return missing_rights_text(place)


def missing_rights_text(path: Path) -> str:
    """Whose a file is that this user may not use, and which command by whom gives the rights; for POSIX systems."""
    place = _first_closed_path(Path(os.path.abspath(path)))  # noqa: PTH100 - as above
    state = place.stat()
    user, owner, group = user_name(os.geteuid()), user_name(state.st_uid), group_name(state.st_gid)
    whose = f"{place} belongs to {owner} and group {group} with mode {stat.S_IMODE(state.st_mode):04o}"
    team = team_folder_above(place / TEAM_FILE)
    for_group = (state.st_mode & stat.S_IRWXU) >> 3 == state.st_mode & stat.S_IRWXG
    member = state.st_gid in (os.getegid(), *os.getgroups())
    rights = f"+rw{'x' if place.is_dir() else ''} {shlex.quote(str(place))}"
    if state.st_uid == os.geteuid():
        give = f"give yourself the rights: chmod u{rights}"
    elif for_group and not member and state.st_uid != ADMINISTRATOR:
        give = f"an administrator makes {user} a member: usermod -aG {shlex.quote(group)} {shlex.quote(user)}"
    elif team is not None:
        give = f"{owner} gives the group its rights: dpsweep team {shlex.quote(str(team))}"
    elif member and state.st_uid != ADMINISTRATOR:
        give = f"{owner} can give rights: chmod g{rights}"
    else:
        give = "use a place of your own, or one that `dpsweep team` makes for several users"
    absent = os.access(place, os.X_OK) and not os.path.lexists(path)
    return f"{whose}, which keeps {user} {f'from making {path}' if absent else 'out'}; {give}"


def _first_closed_path(path: Path) -> Path:
    """The outermost part of a path that this user may not use, or the nearest one that exists."""
    above = [one for one in (*reversed(path.parents), path) if os.path.lexists(one)]
    for one in above[:-1]:
        if not os.access(one, os.X_OK):
            return one
    return above[-1]


def user_name(number: int) -> str:
    """The name of a user, the number where none is known."""
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def group_name(number: int) -> str:
    """The name of a group, the number where none is known."""
    import grp

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
