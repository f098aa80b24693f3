"""Adds the defaults and places of new fields of stored classes to accounting/stored_names/format_defaults.json.

python docs/generators/format_defaults.py

What the table has stays: it says the defaults as of format 1, and identities depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, signature
from typing import Any

from dpsweep.accounting.stored_names.format_defaults import TABLE
from dpsweep.accounting.stored_names.tags import (
    EXTRACTORS,
    FAMILY_OF,
    class_of_tag,
    import_path_of_registered_part,
    is_path_in_our_packages,
    registered_part_names,
)

OUTSIDE = frozenset({"accountant", "policy", "logger"})
"""Families of classes that no identity contains."""

FAMILIES = FAMILY_OF | {
    name: "features"
    for name in registered_part_names(EXTRACTORS)
    if is_path_in_our_packages(import_path_of_registered_part(EXTRACTORS, name) or "")
}
"""The family of each tag of ours."""


def defaults_of(tag: str) -> Mapping[str, Any]:
    """The plain defaults of a class's fields, or of the parameters of a model's function or a named method, by name."""
    kind = class_of_tag(tag, FAMILIES[tag])
    if isinstance(kind, type) and is_dataclass(kind):
        given = {one.name: one.default for one in fields(kind) if one.init and one.default is not MISSING}
        made = {one.name: one.default_factory() for one in fields(kind) if one.init and callable(one.default_factory)}
        return _plain(given | made)
    parameters = signature(kind).parameters.items()
    return _plain({name: one.default for name, one in parameters if one.default is not Parameter.empty})


PLACES = {"Place": "{}", "Place | None": "{}", "PlacedFile": "{0}.file {0}.package"}
"""The keys of the places in a field, by its annotation."""


def places_of(tag: str) -> list[str]:
    """The keys of the places in a class, or among the parameters of a model's function."""
    fields_by_name = signature(class_of_tag(tag, FAMILIES[tag])).parameters.items()
    return sorted(
        key for name, one in fields_by_name for key in PLACES.get(str(one.annotation), "").format(name).split()
    )


def with_new_fields(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table with the defaults of all fields that it lacks."""
    known = table["classes"]
    stored = (tag for tag, family in FAMILIES.items() if family not in OUTSIDE)
    classes = {tag: {**defaults_of(tag), **known.get(tag, {})} for tag in stored}
    places = {tag: keys for tag in classes if (keys := places_of(tag))}
    return {**table, "classes": known | classes, "places": places}


def written(table: Mapping[str, Any]) -> str:
    """The text of the file."""
    return json.dumps(table, indent=1, sort_keys=True) + "\n"


def _plain(values: Mapping[str, Any]) -> Mapping[str, Any]:
    plain: Mapping[str, Any] = json.loads(json.dumps(values))
    return plain


if __name__ == "__main__":
    TABLE.write_text(written(with_new_fields(json.loads(TABLE.read_text()))))
