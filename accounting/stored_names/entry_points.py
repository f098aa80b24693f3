"""Parts that installed distributions offer by a name: loggers, disclosure formats, frozen extractors and audits.

Those of dpsweep stand in its `pyproject.toml` as those of any other distribution stand in theirs; no module lists them.
Invariants:

* A name selects only what an installed distribution has registered under one of these groups. The current folder is
  not on `sys.path`, and the finder of the user's own modules there (`trainers/user_modules.py`) knows no distributions.
* Nothing of a distribution is imported before one of its parts is asked for by name, so a broken distribution harms
  nobody who does not use it. `dpsweep export` alone asks each registered form for the name of its document.
* A name that several distributions have registered selects none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.errors import BadInput, DpsweepError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

LOGGERS = "dpsweep.loggers"
FORMATS = "dpsweep.disclosure_formats"
EXTRACTORS = "dpsweep.feature_extractors"
AUDITS = "dpsweep.audits"
"""The groups of classes, or, of audits, of functions: `name = module:Class`."""

CONFIGURATIONS = "dpsweep.configurations"
"""The group of packages with YAML files for Hydra, in folders named like those of conf/: `name = package.folder`."""

CONF = Path(__file__).resolve().parents[2] / "conf"
"""The folder of dpsweep's own configurations."""

US = "dpsweep"


def registered_part_names(group: str) -> tuple[str, ...]:
    """The names that distributions have registered in a group, in alphabetical order."""
    return tuple(sorted({entry.name for entry in _entry_points_of_group(group)}))


def import_path_of_registered_part(group: str, name: str) -> str | None:
    """The path `module.Class` of a part, which is not imported; None if nobody, or several, have registered it."""
    entries = _entry_points_named(group, name)
    return entries[0].value.replace(":", ".") if len(entries) == 1 else None


def is_registered_path(path: str) -> bool:
    """Whether a distribution has registered the class or function at this dotted path as a logger or an extractor."""
    entries = (entry for group in (LOGGERS, EXTRACTORS) for entry in _entry_points_of_group(group))
    return any(entry.value.replace(":", ".") == path for entry in entries)


def load_registered_part(group: str, name: str, word: str) -> Any:
    """The class or function that a distribution has registered; `word` is what a command line calls it by.

    Raises `BadInput`, one sentence with the distribution's name, if it cannot be imported.
    """
    entries = _entry_points_named(group, name)
    if not entries:
        known = ", ".join(registered_part_names(group)) or "registered by an installed distribution"
        raise BadInput(f"Expected {word} to be one of {known}.")
    if len(entries) > 1:
        raise BadInput(f"Expected {word} of one distribution, got {' and '.join(map(_distribution_name, entries))}.")
    with part_errors_as_bad_input(group, name, word):
        return entries[0].load()


@contextmanager
def part_errors_as_bad_input(group: str, name: str, word: str) -> Iterator[None]:
    """Within it, an error of another distribution's code is a `BadInput` with its name; errors of ours pass."""
    try:
        yield
    except DpsweepError:
        raise
    except (Exception, SystemExit) as cause:
        owner = ", ".join(map(_distribution_name, _entry_points_named(group, name)))
        if owner == US and not isinstance(cause, ImportError | AttributeError):
            raise
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())
        raise BadInput(f"Expected the distribution {owner} to work with {word}, got {reason}.") from cause


def distributions_with_config_folders() -> Iterator[tuple[str, Path]]:
    """Each distribution with configurations, and their folder; no module is imported, and missing folders are left out.

    The folder is found where Python looks for packages, never in the current folder. Raises `BadInput` for one with
    configurations of Hydra's own: Hydra would take them for the sweeper and the launchers, which are not files of ours.
    """
    for entry in _entry_points_of_group(CONFIGURATIONS):
        package, *inner = entry.value.split(".")
        spec = PathFinder.find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            folder, owner = Path(place, *inner), _distribution_name(entry)
            if (folder / "hydra").exists():
                raise BadInput(f"Expected the distribution {owner} to configure groups of dpsweep alone, got hydra/.")
            if folder.is_dir():
                yield owner, folder


@cache
def _entry_points_of_group(group: str) -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points

    return tuple(entry_points(group=group))


def _entry_points_named(group: str, name: str) -> tuple[EntryPoint, ...]:
    return tuple(entry for entry in _entry_points_of_group(group) if entry.name == name)


def _distribution_name(entry: EntryPoint) -> str:
    return "unknown" if entry.dist is None else entry.dist.name
