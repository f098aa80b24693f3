"""The one way in which dpsweep creates folders: for their owner alone, whatever the umask.

`Path.mkdir(parents=True, mode=...)` gives the mode to the last folder only: under a umask of 0 the others could be
written by everybody, who could then exchange what lies in them.
"""

from __future__ import annotations

from pathlib import Path

from dpsweep.accounting.group_commit import Flushing, alone

FOLDER = 0o700
READABLE = 0o755
"""For folders that hold nothing private."""


def make_folder(folder: Path, mode: int = FOLDER) -> None:
    """Creates a folder if it is missing, and the missing folders above it with the same mode, less the umask.

    Raises `OSError`, as `Path.mkdir` does, also if there is a file in its place.
    """
    for one in reversed(_missing(folder)):
        one.mkdir(mode=mode, exist_ok=True)


def made_folder(folder: Path) -> None:
    """Creates a folder for its owner alone, if it is missing, and flushes its name to the disk."""
    alone(making_folder(folder))


def making_folder(folder: Path) -> Flushing[None]:
    """Does what `made_folder` does, as a part of a group commit."""
    if folder.is_dir():
        return
    for one in reversed(_missing(folder)):
        one.mkdir(mode=FOLDER, exist_ok=True)
        yield one.parent


def _missing(folder: Path) -> list[Path]:
    """The folder, which may exist, and the folders above it that do not."""
    return [folder, *(above for above in folder.parents if not above.exists())]
