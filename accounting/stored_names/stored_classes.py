"""Names of classes in stored forms: tags for our classes, paths for the user's.

A plan, a ledger and a trial's configuration name a class of ours as `{"kind": tag, **fields}`, and one of the user's
(or Optuna's) as `{"_target_": "module.Class", **fields}`. Configurations (conf/, command lines) name both by
`_target_`, as Hydra does. Invariants:

* Identities are hashes of `identity` forms, which have tags too, no field at its class's default, and no place: a path
  of a file or folder whose checksum they have (`accounting/stored_names/format_defaults.py`).
* Reading a stored form imports nothing. Every name in it is checked against the tags and the expected family before
  anything is built; then only a class of ours is built, or, if the caller passes a builder for them, one of the user's.
* Inside the fields of a user's class, our classes have the form `{"_target_": tag}`: a tag has no dot, so it is
  nobody's path, and the key `kind` belongs to the user there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from inspect import signature
from pathlib import PurePath
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.format_defaults import (
    defaults_of,
    read_table,
    with_defaults,
    without_defaults,
)
from dpsweep.accounting.stored_names.tags import (
    HOMES,
    PARTS,
    REGISTERED,
    class_of_tag,
    current_path_of_tag,
    is_path_in_our_packages,
    part_errors_as_bad_input,
    require_tag_of_family,
    tag_of_path,
    tags_of_family_text,
)

TARGET, KIND = "_target_", "kind"
"""The key of a class's path, and the key of a tag."""

HYDRA_KEYS = frozenset({"_recursive_", "_convert_"})
"""Hydra's own keys beside the fields of a class; they change nothing about a class of ours."""

NESTED: Mapping[str, str] = {
    "rule": "rule",
    "claimants": "accountant",
    "witnesses": "accountant",
    "then": "lr_schedule",
    "transform": "transform",
    "update": "update",
    "files": "files",
    "vocabulary": "vocabulary",
    "source": "source",
}
"""The fields of our classes that hold a class or a list of classes, with the family; no other field does."""

SOURCE = "source"
"""The field with the path of a user's class and its arguments."""

AUTO, RECIPE = "auto", "recipe"
"""The word for numbers that a law chooses, and the part of a trial's configuration that has their keys and the law."""

CHECKSUM = "sha256"
"""The field with the checksum of what lies at a place, beside it."""

SCRIPT = "script"
"""The tag of the method that runs a program of the user's, and the field with the program's path."""

CLOSED = frozenset({"policy", "rule", "noise"})
"""Families without user classes: these classes are part of a claim that others verify."""

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")

Foreign = Callable[[Mapping[str, Any], str], Any]
"""Builds a user's class, from a part of a configuration or a field, for this family."""


def stored_form_of_config_part(node: Any, family: str) -> Any:
    """The stored form of a part of a configuration: tags for classes of ours, paths for the user's.

    A stored form is its own. Raises `BadInput` if a class of ours has no tag or is of another family.

    >>> rule = {"_target_": "dpsweep.accounting.selection.rules.Public"}
    >>> stored_form_of_config_part({"_target_": "dpsweep.accounting.selection.rules.Final", "rule": rule}, "rule")
    {'kind': 'final', 'rule': {'kind': 'public'}}
    """
    if isinstance(node, list):
        return [stored_form_of_config_part(one, family) for one in node]
    if not _names_class(node):
        return node
    values, key = dict(node), TARGET if TARGET in node else KIND
    if not isinstance(name := values.pop(key), str):
        raise BadInput(f"Expected {family} to name a class, got {name!r}.")
    tag = tag_of_path(name) if key == TARGET and not (family in REGISTERED and "." not in name) else name
    if tag is None:
        _require_path_of_user_class(name, family)
        return {TARGET: name} | {field: _rewrite_class_names(value, str) for field, value in values.items()}
    require_tag_of_family(tag, family)
    if KIND in values:
        raise BadInput(f"Expected {family} to be one class, got {tag} and {KIND}={values[KIND]!r}.")
    nested = {one: stored_form_of_config_part(values[one], NESTED[one]) for one in values.keys() & NESTED.keys()}
    return {KIND: tag} | values | nested


def _names_class(node: Any) -> bool:
    """Whether a part of a configuration, or a field, names a class."""
    return isinstance(node, Mapping) and (TARGET in node or KIND in node)


def identity_form_of_config_part(node: Any, family: str) -> Any:
    """The form that identities are hashes of: the stored form without places and fields at their class's default.

    A field that a class of ours gains, with a default, changes no identity
    (`accounting/stored_names/format_defaults.py`).

    >>> identity_form_of_config_part({"kind": "private_selection", "mean": 3.0, "eta": 1.0}, "rule")
    {'kind': 'private_selection', 'mean': 3.0}
    """
    return _stored_class_without_defaults(stored_form_of_config_part(node, family), family)


def stored_form_of_trial_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's configuration, part by part, as `stored` writes it."""
    return {part: stored_form_of_config_part(node, part) if part in PARTS else node for part, node in config.items()}


def stored_form_of_rule_with_defaults(node: Any) -> Any:
    """The stored form of a rule with every field: pages show them, and a stored plan may lack one at its default."""
    form = stored_form_of_config_part(node, "rule")
    if not isinstance(form, Mapping) or KIND not in form:
        return form
    whole = with_defaults(form, defaults_of(str(form[KIND])))
    return whole | ({"rule": stored_form_of_rule_with_defaults(whole["rule"])} if "rule" in whole else {})


def identity_form_of_trial_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's configuration as `identity` writes each part, without parts at their default."""
    parts = {part: identity_form_of_config_part(node, part) if part in PARTS else node for part, node in config.items()}
    return without_defaults(parts, defaults_of("trial", "parts"))


def with_words_of_recipe(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration with the word in place of the numbers that a law chose, for a command to type."""
    for key in config.get(RECIPE, {}).get("keys", ()):
        part, _, name = key.partition(".")
        config = {**config, part: {**config[part], name: AUTO} if name else AUTO}
    return config


def is_place(config: Mapping[str, Any], key: str) -> bool:
    """Whether a dotted key of a stored configuration is a place, which no identity contains.

    >>> model = {"kind": "hf", "path": "/models/bert"}
    >>> is_place({"model": model | {"sha256": "0f"}}, "model.path"), is_place({"model": model}, "model.path")
    (True, False)
    """
    part, _, below = key.partition(".")
    node = config.get(part)
    return isinstance(node, Mapping) and (below in _place_keys(node) or is_place(node, below))


def names_place(node: Any) -> bool:
    """Whether a stored form has a place anywhere in a class of ours."""
    inner = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    return bool(isinstance(node, Mapping) and _place_keys(node)) or any(map(names_place, inner))


def tag_or_path_of_class(node: Mapping[str, Any]) -> str:
    """The tag of the class that a part of a configuration names, or the path of a class of the user's.

    >>> ours = {"_target_": "dpsweep.trainers.models.fully_connected.logistic"}
    >>> tag_or_path_of_class(ours), tag_or_path_of_class({"_target_": "my_model.Net"}), tag_or_path_of_class({})
    ('logistic', 'my_model.Net', '')
    """
    if TARGET not in node:
        return str(node.get(KIND, ""))
    path = str(node[TARGET])
    return tag_of_path(path) or path


def class_name_without_module(node: Mapping[str, Any]) -> str:
    """The class's name in its source code, without the module.

    >>> class_name_without_module({"kind": "linear_clip_norm"}), class_name_without_module({"_target_": "my_model.Net"})
    ('Linear', 'Net')
    """
    return current_path_of_class(node).rpartition(".")[2]


def current_path_of_class(node: Mapping[str, Any]) -> str:
    """The current path of the class."""
    name = tag_or_path_of_class(node)
    return name if "." in name else current_path_of_tag(name)


def fields_without_class_name(node: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in a part of a configuration, without the name of the class."""
    key = TARGET if TARGET in node else KIND
    return {name: value for name, value in node.items() if name != key and name not in HYDRA_KEYS}


def with_current_paths_of_our_classes(value: Any) -> Any:
    """The fields of a user's class, with the current paths of our classes in it."""
    return _rewrite_class_names(value, HOMES.__getitem__)


def find_user_classes_and_scripts(value: Any) -> frozenset[str]:
    """The paths of all classes that are not ours, anywhere in a stored form, and of a script with its checksum.

    A class of another distribution is not ours, though its form has a tag.
    """
    return frozenset(_iterate_user_classes_and_scripts(value))


def build_from_stored_form(node: Any, family: str, foreign: Foreign | None = None) -> Any:
    """The object that a stored form or a configuration describes; `foreign` builds classes of the user's, if allowed.

    Every name is checked before anything is imported. Raises `BadInput` if a class is missing or of another family, or
    lacks a field, and passes on the class's own errors about invalid values.
    """
    node = stored_form_of_config_part(node, family)
    if not _names_class(node):
        raise BadInput(f"Expected {family}={node!r} to name a class.")
    if TARGET in node:
        if foreign is None:
            raise BadInput(f"Expected {family}={node[TARGET]} to be a class of ours.")
        return foreign(node, family)
    kind = class_of_tag(str(node[KIND]), family)
    values = fields_without_class_name(node)
    if is_dataclass(kind):
        check_no_unknown_fields(values, family, kind)
    fields = {name: _build_field(name, value, foreign) for name, value in values.items()}
    if family not in REGISTERED:
        return kind(**fields)
    with part_errors_as_bad_input(REGISTERED[family], str(node[KIND]), f"{family}={node[KIND]}"):
        return kind(**fields)


def check_no_unknown_fields(fields: Iterable[str], name: str, kind: Any) -> None:
    """Raises `BadInput` if a given field is unknown to the class; `name` is the class's name in messages."""
    known = signature(kind).parameters
    for key in fields:
        if key not in known:
            expected = f"one of {', '.join(sorted(known))}" if known else f"left out: {kind.__name__} has no such field"
            raise BadInput(f"Expected {name}.{key} to be {expected}.")


def _build_field(name: str, value: Any, foreign: Foreign | None) -> Any:
    """A field's value, built if it is a class; `source` is for the data set to build."""
    family = NESTED.get(name, SOURCE)
    if isinstance(value, list):
        return [_build_field(name, one, foreign) for one in value]
    if _names_class(value) and family != SOURCE:
        return build_from_stored_form(value, family, foreign)
    return value


def _stored_class_without_defaults(node: Any, family: str) -> Any:
    """A stored class, or a list of them, without fields at their default, also in the classes among its fields."""
    if isinstance(node, list):
        return [_stored_class_without_defaults(one, family) for one in node]
    if not _names_class(node) or TARGET in node:
        return node
    defaults = {**defaults_of(family, "parts"), **defaults_of(node[KIND])}
    values = without_defaults(_without_places(node), defaults)
    nested = {one: _stored_class_without_defaults(values[one], NESTED[one]) for one in values.keys() & NESTED.keys()}
    return values | nested


def _place_keys(node: Mapping[str, Any]) -> Sequence[str]:
    """The keys of places beside which a checksum stands: without one, the place alone tells contents apart."""
    keys = () if TARGET in node else read_table()["places"].get(str(node.get(KIND)), ())
    return [key for key in keys if (node.get(key.partition(".")[0], {}) if "." in key else node).get(CHECKSUM)]


def _without_places(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stored class of ours without its places; arguments of a user's class beside them name what is below one."""
    if not (keys := _place_keys(node)):
        return node
    kept = _without_keys(node, keys)
    for place in (str(node[key]) for key in keys if key in node and SOURCE in node):
        kept[SOURCE] = _relative_to_place(kept[SOURCE], PurePath(place))
    return kept


def _without_keys(node: Mapping[str, Any], keys: Sequence[str], above: str = "") -> dict[str, Any]:
    return {
        key: _without_keys(value, keys, f"{above}{key}.") if isinstance(value, Mapping) else value
        for key, value in node.items()
        if f"{above}{key}" not in keys
    }


def _relative_to_place(value: Any, place: PurePath) -> Any:
    if isinstance(value, Mapping):
        return {key: _relative_to_place(inner, place) for key, inner in value.items()}
    if isinstance(value, list):
        return [_relative_to_place(inner, place) for inner in value]
    is_below = isinstance(value, str) and PurePath(value).is_relative_to(place)
    return {"below_place": PurePath(value).relative_to(place).as_posix()} if is_below else value


def _rewrite_class_names(value: Any, write: Callable[[str], str]) -> Any:
    """The fields of a user's class, with only the names of our classes in it rewritten."""
    if isinstance(value, list):
        return [_rewrite_class_names(one, write) for one in value]
    if not isinstance(value, Mapping):
        return value
    inner = {field: _rewrite_class_names(one, write) for field, one in value.items()}
    if TARGET in inner:
        path = str(inner[TARGET])
        tag = tag_of_path(path)
        inner[TARGET] = path if tag is None else write(tag)
        if tag is None and is_path_in_our_packages(path):
            _require_path_of_user_class(path, "source")
    return inner


def _require_path_of_user_class(path: str, family: str) -> None:
    """Raises `BadInput` unless the path may name a user's class in this family."""
    if not _PATH.fullmatch(path):
        raise BadInput(f"Expected {family}={path!r} to name a class as module.Class.")
    known = tags_of_family_text(family)
    if family in CLOSED:
        raise BadInput(f"Expected {family}={path} to be one of {known}: those who verify know no other.")
    if is_path_in_our_packages(path):
        raise BadInput(f"Expected {family}={path} to be one of {known or 'those in tags.toml'}, or one of your own.")


def _iterate_user_classes_and_scripts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if value.get(KIND) == SCRIPT:
            yield f"{value.get(SCRIPT)} (sha256 {value.get('sha256')})"
        parts = (value[part] for part in REGISTERED.keys() & value.keys())
        paths = (current_path_of_class(part) for part in parts if isinstance(part, Mapping) and KIND in part)
        yield from (path for path in paths if not is_path_in_our_packages(path))
        for key, inner in value.items():
            if key == TARGET and tag_of_path(str(inner)) is None:
                yield str(inner)
            yield from _iterate_user_classes_and_scripts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _iterate_user_classes_and_scripts(inner)
