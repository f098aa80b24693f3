"""Durable names: the tag of every class of ours that is stored or hashed, and the current path of that class.

A module may move and a class may be renamed; a ledger and a sweep folder must stay readable, and a repeated command
must find the plan that it was charged for. So stored forms name a class of ours by its tag
(`accounting/stored_names/stored_classes.py`). Invariants:

* A tag means one class for ever. Moving or renaming the class changes its line in tags.toml and nothing else: no
  stored form and no identity depends on the current path of a class.
* A class is imported by its tag only if its family is expected: a rule for a rule, a policy for a policy.
* The tags of frozen extractors and loggers are names that distributions register, ours and others'
  (`accounting/stored_names/entry_points.py`). A form with such a name can be read where the distribution is missing.

To add a class: give it a tag in tags.toml, in its family. A class below our packages without a tag is refused at
planning.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.entry_points import (
    EXTRACTORS,
    LOGGERS,
    import_path_of_registered_part,
    load_registered_part,
    registered_part_names,
)

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


def tag_of_class(kind: type) -> str:
    """The tag of a class of ours; raises `BadInput` if it has none."""
    path = f"{kind.__module__}.{kind.__qualname__}"
    if (tag := tag_of_path(path)) is None:
        raise BadInput(
            f"Expected {path} to be a class with a tag in accounting/stored_names/tags.toml: it cannot be stored."
        )
    return tag


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
