"""Durable names: the tag of every class of ours that is stored or hashed, and the current path of that class.

A module may move and a class may be renamed; a ledger and a sweep folder must stay readable, and a repeated command
must find the plan that it was charged for. So stored forms name a class of ours by its tag
(`accounting/stored_names/stored_classes.py`). Invariants:

* A tag means one class for ever. Moving or renaming the class changes its line in tags.toml and nothing else: no
  stored form and no identity depends on the current path of a class.
* A class is imported by its tag only if its family is expected. Rules and policies have a table beside their classes
  too, by which ledgers and plans are read (`accounting/selection/rules.py`); a test compares it with tags.toml.
* The tags of frozen extractors and loggers are names that installed distributions register, ours and others', and so
  are those of disclosure formats and audits: dpsweep's stand in its `pyproject.toml`. A name selects only what a
  distribution has registered under its group, and none if several have. The current folder is not on `sys.path`, and
  the finder of the user's own modules there (`trainers/user_modules.py`) knows no distributions.
* Nothing of a distribution is imported before one of its parts is asked for by name, so a broken distribution harms
  nobody who does not use it. `dpsweep export` alone asks each registered form for the name of its document.

To add a class: give it a tag in tags.toml, in its family. A class below our packages without a tag is refused at
planning.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
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


_FAMILIES: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
"""The tags of each family, with the path of each class below dpsweep."""

REGISTERED: Mapping[str, str] = {"features": EXTRACTORS, "logger": LOGGERS}
"""The families whose tags are names that distributions register, ours too, and the group that they register them in."""

HOMES: dict[str, str] = {tag: f"dpsweep.{home}" for family in _FAMILIES.values() for tag, home in family.items()}
"""The current path of each tag's class, or, for a model, of the function that makes it."""

FAMILY_OF: dict[str, str] = {tag: name for name, family in _FAMILIES.items() for tag in family}
"""The family of each tag."""

PARTS = frozenset(_FAMILIES)
"""The families, which are also the names of the parts of a configuration."""

_REGISTERED_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAGS: Mapping[str, str] = {home: tag for tag, home in HOMES.items()}
_OWN_PACKAGES = frozenset(home.partition(".")[0] for home in HOMES.values())


def tag_of_path(path: str) -> str | None:
    """The tag with this path or name; None if there is none."""
    return path if path in HOMES else _TAGS.get(path)


def class_of_tag(tag: str, family: str) -> Any:
    """The class with this tag and family, imported; raises `BadInput` if there is none, or if it cannot be imported."""
    require_tag_of_family(tag, family)
    if family in REGISTERED:
        return load_registered_part(REGISTERED[family], tag, f"{family}={tag}")
    module, _, name = HOMES[tag].rpartition(".")
    return getattr(import_module(module), name)


def require_tag_of_family(tag: str, family: str) -> None:
    """Raises `BadInput` unless the tag is one of this family, or could be a name that a distribution registers."""
    if family in REGISTERED and _REGISTERED_NAME.fullmatch(tag) and tag not in HOMES:
        return  # a name that is a tag elsewhere would pass for a class of ours
    if FAMILY_OF.get(tag) != family:
        known = tags_of_family_text(family)
        allowed = f"one of {known}" if known else "a class of your own"
        raise BadInput(f"Expected {family}={tag} to be {allowed}.")


def tags_of_family_text(family: str) -> str:
    """The tags of a family, as text for a message."""
    if family in REGISTERED:
        return ", ".join(registered_part_names(REGISTERED[family]))
    return ", ".join(sorted(tag for tag, own in FAMILY_OF.items() if own == family))


def current_path_of_tag(tag: str) -> str:
    """The path of the class with this tag, which is not imported; the tag itself where nobody here knows it."""
    registered = (path for group in REGISTERED.values() if (path := import_path_of_registered_part(group, tag)))
    return HOMES.get(tag) or next(registered, tag)


def is_path_in_our_packages(path: str) -> bool:
    """Whether a path leads into our packages."""
    return path.partition(".")[0] in _OWN_PACKAGES


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
