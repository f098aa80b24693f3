"""What no identity contains: default values as of format 1, and places, where a file with a checksum lies.

An identity is the hash of a stored form without the fields that are at their default here. So a class may gain a
field: once its default is in the table, the same command keeps its plan and its charge.
`docs/generators/format_defaults.py` adds new fields from the classes' own defaults. Invariant: what the table has is
never changed, and neither is a class's own default: a field that a stored form lacks has the default that its identity
says.

A field of type `Place` says where something lies, or what it is called there; another field of its class has the
checksum of the content, which a job compares. A stored form keeps the place, so that its files are found again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".json")

Place = str
"""The type of a field that no identity contains, since a checksum beside it says what lies there."""

PlacedFile = Mapping[str, str]
"""The type of a field that has the `package`, the `file` and the `sha256` of a file; the first two are places."""


@cache
def read_table() -> dict[str, Mapping[str, Mapping[str, Any]]]:
    """Of `classes`, by tag, and of `parts` of a plan or a configuration the defaults; of classes the `places`.

    The key of a place in a mapping is dotted. The code of an exported model has this module without the table.
    """
    table: dict[str, Mapping[str, Mapping[str, Any]]] = json.loads(TABLE.read_text())
    return table


def defaults_of(tag: str, kind: str = "classes") -> Mapping[str, Any]:
    """The defaults of the fields of a stored class of ours, or of the keys of one of the `parts`; empty without any."""
    return read_table()[kind].get(tag, {})


def without_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The values without those that equal the default of their key; so are the values of a group, key by key.

    >>> without_defaults({"a": 1.0, "b": True, "c": {"d": 1, "e": 2}}, {"a": 1, "b": 1, "c": {"d": 1, "e": 3}})
    {'b': True, 'c': {'e': 2}}
    """
    kept = {}
    for key, value in values.items():
        default: Any = defaults.get(key)
        if isinstance(value, Mapping) and _is_group_of_config_keys(default):
            value = without_defaults(value, default)
            if value:
                kept[key] = value
        elif key not in defaults or value != default or isinstance(value, bool) != isinstance(default, bool):
            kept[key] = value
    return kept


def with_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The values, and the default of each key that they lack; so for a group, key by key.

    >>> with_defaults({"a": 3, "c": {"d": 5}}, {"b": 1, "c": {"d": 1, "e": 3}})
    {'a': 3, 'c': {'d': 5, 'e': 3}, 'b': 1}
    """
    known = {
        key: with_defaults(value, defaults[key])
        if _is_group_of_config_keys(value) and _is_group_of_config_keys(defaults.get(key))
        else value
        for key, value in values.items()
    }
    return known | {key: default for key, default in defaults.items() if key not in values}


def _is_group_of_config_keys(value: Any) -> bool:
    """Whether a value is a group of keys, and no class."""
    return isinstance(value, Mapping) and "kind" not in value
