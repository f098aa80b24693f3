"""The user's modules in the folder where a command was started, without that folder on `sys.path`.

Libraries try imports that fail (`org` in the standard library's copy, `pytz`, `dill`): a folder on `sys.path`, at any
place, answers them, so that a folder of somebody else's would run code. So the folder is asked for two kinds of
top-level modules alone, and only after Python has found none of that name anywhere else:

* the first part of a path that `allow_import_of_module_of_user_class` was given: of a class that the command line or
  the user's own configuration names, which every caller has to make sure of;
* what a module that was itself found in this folder imports, at its top or later.

A process that unpickles objects of such classes unpickles `FINDER` before them, which installs it there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType

_IMPORT_SYSTEM = frozenset({"importlib", "_frozen_importlib", "_frozen_importlib_external"})
"""The packages whose frames stand between an import and the finder that is asked."""


OURS = __name__.partition(".")[0]


def is_of_users_own_class(value: object) -> bool:
    """Whether a value's class is none of dpsweep's, whose tests hold them to their contracts."""
    return type(value).__module__.partition(".")[0] != OURS


class UserModules:
    """A finder for `sys.meta_path`: `names` are asked for by anybody, other modules by those that were `found`."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.names: set[str] = set()
        self.found: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module in the folder, if it may be asked for; None for every module inside a package."""
        if (
            path is not None
            or self.folder is None
            or not (name in self.names or _top_package_of_importer() in self.found)
        ):
            return None
        spec = PathFinder.find_spec(name, [self.folder])
        if spec is not None:
            self.found.add(name)
        return spec

    def install_finder_for_folder(self, folder: str | None) -> None:
        """Asks this folder from now on, after all other finders."""
        self.folder = folder
        if self not in sys.meta_path:
            sys.meta_path.append(self)

    def __reduce__(self) -> tuple[Callable[..., UserModules], tuple[str | None, set[str], set[str]]]:
        return _recreate_finder_in_this_process, (self.folder, self.names, self.found)


FINDER = UserModules()
"""The finder of this process."""


def set_folder_of_user_modules(folder: Path) -> None:
    """Lets the user's classes be found in this folder from now on, and nothing else."""
    FINDER.install_finder_for_folder(str(folder.absolute()))


def allow_import_of_module_of_user_class(path: str) -> None:
    """Lets the first module of a class's dotted path be found in the user's folder; other texts change nothing."""
    parts = path.split(".")
    if all(part.isidentifier() for part in parts):
        FINDER.names.add(parts[0])


def _recreate_finder_in_this_process(folder: str | None, names: set[str], found: set[str]) -> UserModules:
    """The finder of another process, in this one: what was found there may be asked for here, as by `pickle`."""
    FINDER.names |= names | found
    if folder is not None:
        FINDER.install_finder_for_folder(folder)
    return FINDER


def _top_package_of_importer() -> str:
    """The top-level package of the module whose code asks for an import."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (package := _top_package_of_frame(frame)) in _IMPORT_SYSTEM:
        frame = frame.f_back
    return "" if frame is None else package


def _top_package_of_frame(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def error_as_one_line(error: Exception) -> str:
    """An error from the user's code, or about a file of the user's, as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")
