"""Files that survive a crash: folders for their owner alone, files written atomically, and bytes appended durably.

`DPSWEEP_GROUP` names a folder of several Unix users of one group (docs/scaling.md makes one). What is created below it
gives the group the owner's rights: 0770 in place of 0700, 0660 in place of 0600. Each user sets the variable, so no
other user's file opens anything to a group; and rights are given as a path is created, never to one that is there:
another member may have put a link in its place.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import stat
import sys
from pathlib import Path

FOLDER, PRIVATE = 0o700, 0o600  # the modes of a folder and of a file for their owner alone


def user_folder(kind: str) -> Path:
    """The folder of dpsweep's data, config or state, where platformdirs has it: `XDG_DATA_HOME` and its like too."""
    if sys.platform == "win32":
        return Path(os.environ["LOCALAPPDATA"], "dpsweep", "dpsweep")
    if posixpath.isabs(named := os.environ.get(f"XDG_{kind.upper()}_HOME", "")):
        return Path(named, "dpsweep")
    usual = {"data": ".local/share", "config": ".config", "state": ".local/state"}[kind]
    return Path.home() / ("Library/Application Support" if sys.platform == "darwin" else usual) / "dpsweep"


def mode_with_group(path: Path, mode: int = PRIVATE) -> int:
    """The mode of a new file or folder, before the umask: below a group's folder the group has the owner's rights."""
    folder = os.environ.get("DPSWEEP_GROUP")
    if not folder or not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        return mode
    return mode | (mode & stat.S_IRWXU) >> 3


def make_folder_and_missing_parents(folder: Path, mode: int = FOLDER) -> list[Path]:
    """Creates a folder and the missing ones above it, with one mode less the umask, and returns them; or `OSError`.

    `Path.mkdir(parents=True, mode=...)` gives the mode to the last one only: under a umask of 0, all may write others.
    """
    missing = [folder, *(above for above in folder.parents if not above.exists())]
    for one in reversed(missing):
        one.mkdir(mode=mode_with_group(one, mode) if mode == FOLDER else mode, exist_ok=True)
    return missing


def make_private_folder_durably(folder: Path) -> None:
    """Creates a folder for its owner alone, if it is missing, and flushes its name to the disk."""
    if not folder.is_dir():
        for one in reversed(make_folder_and_missing_parents(folder)):
            flush_folder(one.parent)


def short_digest_of_json(value: object) -> str:
    """The first digits of the SHA-256 of a value's canonical JSON."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def write_json(path: Path, form: object, mode: int = 0o666, indent: int | None = 1) -> None:
    """Writes JSON as `write_bytes` writes bytes; without an `indent` in a tenth of the time: for files of a trial."""
    write_bytes(path, json.dumps(form, indent=indent, allow_nan=False).encode(), mode)


def write_bytes(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Writes bytes under a temporary name, flushes them to the disk, and renames: readers see all of it or nothing."""
    make_folder_and_missing_parents(path.parent)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    append_bytes(partial, content, mode, create=True)
    partial.replace(path)
    flush_folder(path.parent)


def append_bytes(path: Path, content: bytes, mode: int = PRIVATE, *, create: bool) -> None:
    """Appends bytes to a file and flushes it to the disk; with `create` the file must be new, else it must be there.

    The name of a new file is on the disk after `flush_folder`. Raises `OSError`, also if there is no space for all.
    """
    flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT | os.O_EXCL if create else 0)
    handle = os.open(path, flags, mode_with_group(path, mode))
    try:
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(handle, remaining) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_folder(folder: Path) -> None:
    """Flushes a folder's list of names to the disk: otherwise a power cut may undo creating or renaming a file."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
