"""The code that a configuration names: which of it may be imported, and from where.

`import_named_object` is the only function that imports what a dotted path of a configuration, a plan or a command line
names. A file says nothing about what runs: such a path is imported only if it is that of a class of ours with a tag, if
our own conf/ has it at the same place, if an installed distribution registers it, or if the command itself repeats it.

The user's modules are found in the folder where a command was started, without that folder on `sys.path`. Libraries try
imports that fail (`org` in the standard library's copy, `pytz`, `dill`): a folder on `sys.path`, at any place, answers
them, so that a folder of somebody else's would run code. So the folder is asked for two kinds of top-level modules
alone, and only after Python has found none of that name anywhere else:

* the first part of a path that `import_named_object` imports;
* what a module that was itself found in this folder imports, at its top or later.

A process that unpickles objects of such classes unpickles `FINDER` before them, which installs it there.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, MappingProxyType, ModuleType
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.stored_classes import SCRIPT, TARGET, find_user_classes_and_scripts
from dpsweep.accounting.stored_names.tags import CONF, is_path_in_our_packages, is_registered_path, tag_of_path

_IMPORT_SYSTEM = frozenset({"importlib", "_frozen_importlib", "_frozen_importlib_external"})
"""The packages whose frames stand between an import and the finder that is asked."""


OURS = __name__.partition(".")[0]

CHECKSUM = " (sha256 "
"""What follows the path of a script in its name (`find_user_classes_and_scripts`)."""


def is_of_users_own_class(value: object) -> bool:
    """Whether a value's class is none of dpsweep's, whose tests hold them to their contracts."""
    return type(value).__module__.partition(".")[0] != OURS


class UserModules:
    """A finder for `sys.meta_path`: `names` are asked for by anybody, other modules by those that were `found`.

    `trusted` has the dotted paths, and the paths of scripts, that the command names: they may run.
    """

    def __init__(self) -> None:
        self.folder: str | None = None
        self.trusted: set[str] = set()
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
        return _recreate_finder_in_this_process, (self.folder, self.trusted, self.names | self.found)


FINDER = UserModules()
"""The finder of this process."""


def set_folder_of_user_modules(folder: Path, trusted: Iterable[str] = ()) -> None:
    """Lets the user's classes be found in this folder from now on, and lets the code run that the command names."""
    FINDER.trusted |= set(trusted)
    FINDER.install_finder_for_folder(str(folder.absolute()))


def import_named_object(path: str, place: str = "") -> Any:
    """The class, function or other object at a dotted path that a configuration has at the top of the group `place`.

    Guarantee: nothing is imported unless `may_run(path, place)`. Raises `BadInput` otherwise, and `ImportError` if
    there is no such object.
    """
    if not may_run(path, place):
        raise BadInput(repeated_code_sentence([path]))
    first, *rest = path.split(".")
    FINDER.names.add(first)
    name = first
    try:
        found = import_module(first)
        for part in rest:
            name = f"{name}.{part}"
            is_module_to_import = isinstance(found, ModuleType) and not hasattr(found, part)
            found = import_module(name) if is_module_to_import else getattr(found, part)
    except Exception as cause:  # the user's own code may raise anything
        module, _, last = name.rpartition(".")
        is_missing = isinstance(cause, AttributeError) or (isinstance(cause, ImportError) and cause.name == name)
        reason = f"{module} has no {last}" if module and is_missing else cause
        raise ImportError(f"Expected {path} to be importable: {reason}.") from cause
    return found


def may_run(name: str, place: str = "") -> bool:
    """Whether this code may run: a dotted path at the top of the group `place`, or a script with or without checksum.

    >>> may_run("optuna.samplers.TPESampler", "search"), may_run("optuna.samplers.TPESampler", "model")
    (True, False)
    >>> may_run("os.system"), may_run("dpsweep.trainers.models.fully_connected.mlp")
    (False, True)
    """
    path = name.partition(CHECKSUM)[0]
    return (
        path in FINDER.trusted
        or (is_path_in_our_packages(path) and tag_of_path(path) is not None and "." in path)
        or is_registered_path(path)
        or (bool(place) and path in _paths_in_conf(place))
    )


@cache
def _paths_in_conf(group: str) -> frozenset[str]:
    """The paths that the files of a group of our own conf/ have at their top."""
    texts = (file.read_text(encoding="utf-8") for file in (CONF / group).glob("*.yaml"))
    return frozenset(path for text in texts for path in re.findall(rf"^{TARGET}: (\S+)$", text, re.MULTILINE))


def require_repeated_code(configs: Iterable[Mapping[str, Any]]) -> None:
    """Raises `BadInput` with the words to add if these configurations name code that the command does not repeat.

    A word is the key of a class at the top of a part, if all configurations have that class there; else `trusted`.
    """
    parts = {id(node): (part, node) for config in configs for part, node in config.items()}.values()
    if not (names := unrepeated_code(parts)):
        return
    at_top: dict[str, set[str]] = {}
    for part, node in parts:
        for field in (TARGET, SCRIPT):
            at_top.setdefault(f"{part}.{field}", set()).add(str(node.get(field)) if isinstance(node, Mapping) else "")
    words = {min(paths): f"{key}={min(paths)}" for key, paths in at_top.items() if len(paths) == 1}
    raise BadInput(repeated_code_sentence(names, words))


def unrepeated_code(parts: Iterable[tuple[str, Any]]) -> list[str]:
    """The dotted paths and scripts in these parts of configurations, by name, that may not run."""
    names = {
        name.partition(CHECKSUM)[0]
        for part, node in parts
        for name in find_user_classes_and_scripts({part: node})
        if not may_run(name, part)
    }
    return sorted(names)


def repeated_code_sentence(names: Sequence[str], words: Mapping[str, str] = MappingProxyType({})) -> str:
    """The refusal of code that a file alone names, with the words for a command line that repeat it."""
    others = [name for name in names if name not in words]
    typed = [words[name] for name in names if name in words]
    typed += [f"trusted=[{','.join(others)}]"] if others else []
    return (
        f"Expected {' and '.join(names)} to be on the command line too, since no code runs because a file names it. If "
        f"it is yours, add: {shlex.join(typed)}"
    )


def _recreate_finder_in_this_process(folder: str | None, trusted: set[str], names: set[str]) -> UserModules:
    """The finder of another process, in this one: what was found there may be asked for here, as by `pickle`."""
    FINDER.trusted |= trusted
    FINDER.names |= names
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
