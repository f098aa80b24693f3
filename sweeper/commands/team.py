"""`dpsweep team FOLDER [--group NAME] [--ledger ADDRESS]`: one ledger, private store and key for users of one group.

Everything below the folder belongs to the group, and dpsweep keeps it so (`accounting/team_folder.py`). Given again, it
mends the modes of what the user owns. It creates the key, which members read and cannot write, and a file of
environment variables; the first sweep creates the ledger.
"""

from __future__ import annotations

import argparse
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpsweep.accounting.durable_files import FORMAT, make_folder_and_missing_parents, write_json, write_text
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Key
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import HOME_VARIABLE
from dpsweep.accounting.printing import print_line
from dpsweep.accounting.team_folder import (
    READABLE_BY_GROUP,
    TEAM_FILE,
    forget_team_folders,
    group_name,
    is_team_folder,
    user_name,
)

KEY, STORES, LEDGER, ENVIRONMENT = "dpsweep.key", "stores", "ledger.sqlite", "environment.sh"
EXAMPLE = "dpsweep team /srv/lab --group lab"
SHARED = stat.S_ISGID | stat.S_IRWXU | stat.S_IRWXG


def make_team_folder(arguments: Sequence[str]) -> None:
    """Makes the folder, or mends the modes of what this user owns in it, and says how a member uses it."""
    if os.name != "posix":
        raise BadInput("Expected a system with groups of users (Linux, macOS): elsewhere a team shares no folder.")
    options = _options(arguments)
    folder = Path(options.folder).expanduser().absolute()
    group = folder.stat().st_gid if options.group is None and is_team_folder(folder) else _group_number(options.group)
    address = options.ledger or _ledger_of_team(folder) or str(folder / LEDGER)
    if "://" in address:
        Ledger(address)  # refuses an address of another kind
    for place in (folder, folder / STORES):
        make_folder_and_missing_parents(place)
    _give_to_group(folder, group)
    if _ledger_of_team(folder) != address:
        write_json(folder / TEAM_FILE, {"format": FORMAT, "ledger": address}, READABLE_BY_GROUP)
    forget_team_folders()
    Key.read_or_create(folder / KEY)
    write_text(folder / ENVIRONMENT, _environment(folder, address), READABLE_BY_GROUP)
    for place in _own_paths_below(folder):
        _give_to_group(place, group)
    print_line(f"{folder} is shared by the group {group_name(group)}: ledger {address}, key {KEY}, stores {STORES}/.")
    print_line("Its members can read scores, draws and the key, so each is a curator of the data. Each of them gives:")
    print_line(f". {shlex.quote(str(folder / ENVIRONMENT))}")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--group")
    parser.add_argument("--ledger")
    try:
        options, rest = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as cause:
        raise BadInput(f"Expected --group NAME and --ledger ADDRESS, as in {EXAMPLE}: {cause.message}.") from cause
    if options.folder is None:
        raise BadInput(f"Expected a folder, as in {EXAMPLE}.")
    if rest:
        raise BadInput(f"Expected `dpsweep team` to take a folder, --group and --ledger, got {rest[0]}.")
    return options


def _group_number(name: str | None) -> int:
    """The number of a group that this user may give files to."""
    import grp

    if name is None:
        raise BadInput("Expected --group NAME: the group of Unix users who share the folder.")
    try:
        number = int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise BadInput(f"Expected --group={name} to be a group of this machine: groupadd {shlex.quote(name)}") from None
    if os.geteuid() and number not in (os.getegid(), *os.getgroups()):
        user = user_name(os.geteuid())
        raise BadInput(
            f"Expected {user} to be a member of the group {name}: an administrator gives usermod -aG "
            f"{shlex.quote(name)} {shlex.quote(user)}, and {user} logs in again."
        )
    return number


def _ledger_of_team(folder: Path) -> str | None:
    """The ledger that the team's folder was made with, None for a new one."""
    import json

    path = folder / TEAM_FILE
    return str(json.loads(path.read_text())["ledger"]) if path.is_file() else None


def _environment(folder: Path, address: str) -> str:
    variables = {"DPSWEEP_LEDGER": address, "DPSWEEP_KEY": folder / KEY, HOME_VARIABLE: folder / STORES}
    return "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in variables.items())


def _own_paths_below(folder: Path) -> Iterator[Path]:
    """What this user owns below the folder, without links; the administrator mends all of it."""
    for path in folder.rglob("*"):
        if not path.is_symlink() and (not os.geteuid() or path.stat().st_uid == os.geteuid()):
            yield path


def _give_to_group(path: Path, group: int) -> None:
    """Gives a path to the group, with the owner's rights; the key and the files of the command stay as the owner's."""
    state = path.stat()
    if state.st_gid != group:
        os.chown(path, -1, group)
    fixed = {KEY, TEAM_FILE, ENVIRONMENT}
    mode = SHARED if path.is_dir() else READABLE_BY_GROUP if path.name in fixed else stat.S_IMODE(state.st_mode) & 0o700
    path.chmod(mode if path.is_dir() or path.name in fixed else mode | mode >> 3)
