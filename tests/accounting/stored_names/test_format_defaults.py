"""A field at its default as of format 1 is in no identity: a class may gain one, and charged plans stay the same."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.stored_names import format_defaults
from dpsweep.accounting.stored_names.format_defaults import (
    TABLE,
    defaults_of,
)
from dpsweep.accounting.stored_names.stored_classes import (
    identity_form_of_config_part,
    identity_form_of_trial_config,
    stored_form_of_config_part,
)
from dpsweep.accounting.stored_names.tags import class_of_tag
from tests.freezing import FROZEN, SEARCHES

ROOT = Path(__file__).parent.parent.parent.parent
NEW = {"newer": [{"deep": 1}], "flag": False}
"""Fields that no class has yet, with their defaults."""


def generator() -> ModuleType:
    """docs/generators/format_defaults.py, which is no module of the package."""
    spec = importlib.util.spec_from_file_location(
        "docs_format_defaults", ROOT / "docs" / "generators" / "format_defaults.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FAMILY_OF: Mapping[str, str] = generator().FAMILIES


@pytest.mark.parametrize("tag", json.loads(TABLE.read_text())["places"])
def test_a_place_leaves_an_identity_only_beside_the_checksum_of_what_lies_there(tag: str) -> None:
    """Else files with other content would be the same plan, which is charged once."""

    def identity(place: str, checksum: str | None) -> object:
        fields: dict[str, Any] = {"kind": tag, "sha256": checksum, "weights": {"sha256": checksum}}
        for key in json.loads(TABLE.read_text())["places"][tag]:
            name, _, below = key.partition(".")
            fields[name] = {**fields[name], below: place} if below else place
        return identity_form_of_config_part(fields, FAMILY_OF[tag])

    assert identity("/a", "s") == identity("/b", "s") != identity("/a", "t")
    assert identity("/a", None) != identity("/b", None)


@pytest.fixture
def gained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every class and every part has gained fields since format 1."""
    table = json.loads(TABLE.read_text())
    tags = {tag: {**table["classes"].get(tag, {}), **NEW} for tag in FAMILY_OF}
    parts = {part: {**own, **NEW} for part, own in table["parts"].items()}
    parts["trial"]["checkpoint"] = {**parts["trial"]["checkpoint"], **NEW}
    later = table | {"classes": tags, "parts": parts}
    monkeypatch.setattr(format_defaults, "read_table", lambda: later)


def data_sets() -> Mapping[str, Mapping[str, Any]]:
    """The data sets of conf/, by the name of their file."""
    files = sorted((ROOT / "conf" / "dataset").glob("*.yaml"))
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in files}
    return {name: form.get("dataset", form) for name, form in forms.items()}


def test_the_table_has_every_field_with_a_default() -> None:
    """Where this fails, run `python docs/generators/format_defaults.py`."""
    table = json.loads(TABLE.read_text())
    assert TABLE.read_text() == generator().written(generator().with_new_fields(table))


@pytest.mark.parametrize("tag", sorted(json.loads(TABLE.read_text())["classes"]))
def test_no_class_has_another_default_than_in_the_table(tag: str) -> None:
    """A stored form without the field would mean something else than its identity says."""
    assert defaults_of(tag) == generator().defaults_of(tag)


@pytest.mark.parametrize("tag", sorted(tag for tag, family in FAMILY_OF.items() if family == "trainer"))
def test_the_table_has_each_default_that_a_method_may_be_given(tag: str) -> None:
    """A named method is an object with parameters, not a class with fields."""
    parameters = signature(class_of_tag(tag, "trainer")).parameters.values()
    given = {one.name for one in parameters if one.default is not Parameter.empty}
    assert given == defaults_of(tag).keys()


@pytest.mark.parametrize("tag", FAMILY_OF)
@pytest.mark.usefixtures("gained")
def test_a_new_field_of_any_class_changes_no_identity(tag: str) -> None:
    family, needed = FAMILY_OF[tag], {"kind": tag, "given": 0.5}
    assert identity_form_of_config_part(needed | NEW, family) == needed
    assert identity_form_of_config_part(needed | NEW | {"flag": 0}, family) == needed | {"flag": 0}, "0 is not false"


@pytest.mark.parametrize("name", data_sets())
@pytest.mark.usefixtures("gained")
def test_a_new_field_of_any_data_set_changes_no_identity(name: str) -> None:
    node = data_sets()[name]
    assert identity_form_of_config_part({**node, **NEW}, "dataset") == identity_form_of_config_part(node, "dataset")


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.usefixtures("gained")
def test_no_plan_of_format_1_changes_where_everything_gains_fields(search: str) -> None:
    form = json.loads((FROZEN / search / "plan.json").read_text())
    for trial in (trial for block in form["blocks"] for trial in block):
        for run in (trial, *([trial["final"]] if "final" in trial else [])):
            later = {part: with_new(node) for part, node in run["config"].items()} | NEW
            later["checkpoint"] = later["checkpoint"] | NEW
            assert identity_form_of_trial_config(later) == identity_form_of_trial_config(run["config"])
            run["config"] = later
    form["rule"] = with_new(form["rule"])
    assert Plan.from_json(form).id == form["id"]


def with_new(node: Any) -> Any:
    """The stored form, with the new fields in it and in every class within."""
    if isinstance(node, list):
        return [with_new(one) for one in node]
    if not isinstance(node, dict):
        return node
    inner = {key: with_new(value) for key, value in node.items()}
    return inner | NEW if "kind" in node else inner


def test_classes_within_classes_lose_their_defaults_and_the_users_keep_theirs() -> None:
    form = {
        "kind": "final",
        "rule": {"kind": "private_selection", "mean": 3.0, "eta": 1, "gamma": None, "limit": None},
    }
    assert identity_form_of_config_part(form, "rule") == {
        "kind": "final",
        "rule": {"kind": "private_selection", "mean": 3.0},
    }
    own = {"_target_": "my_model.Net", "activation": "relu", "head": {"_target_": "mlp", "activation": "relu"}}
    assert identity_form_of_config_part(own, "model") == stored_form_of_config_part(own, "model") == own


def test_parts_at_their_default_are_left_out() -> None:
    parts = dict(defaults_of("trial", "parts"))
    assert identity_form_of_trial_config(parts | {"steps": 3}) == {"steps": 3}
    assert identity_form_of_trial_config({"seed": 0}) == {"seed": 0}
    assert identity_form_of_trial_config({"checkpoint": {"every": 5, "resumes": 1}}) == {"checkpoint": {"every": 5}}
    assert identity_form_of_trial_config({"checkpoint": {"every": None, "resumes": True}}) == {
        "checkpoint": {"resumes": True}
    }


@pytest.mark.parametrize("part", sorted(defaults_of("trial", "parts")))
def test_a_part_that_a_stored_plan_lacks_is_at_its_default(part: str) -> None:
    """Its identity says so: whoever leaves the part out of a plan changes nothing."""
    form = json.loads((FROZEN / "composition" / "plan.json").read_text())
    for trial in (trial for block in form["blocks"] for trial in block):
        del trial["config"][part]
    plan = Plan.from_json(form)
    assert plan.id == form["id"]
    assert all(trial.config[part] == defaults_of("trial", "parts")[part] for trial in plan.trials)


def test_a_key_that_a_class_of_the_users_gets_is_in_its_identity() -> None:
    """Another default may stand in that class."""
    own = {"_target_": "my_score.Own", "metric": "accuracy", "every": None}
    assert identity_form_of_config_part(own, "score") == own
