"""Durable names: tags stand for classes wherever these live, and no identity changes where one moves."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.ledger.book import Addition, Balance, policies
from dpsweep.accounting.records.plan import Plan, Proposed, Trial
from dpsweep.accounting.selection.rules import RULES, Composition, rule_from_config
from dpsweep.accounting.stored_names import tags
from dpsweep.accounting.stored_names.stored_classes import (
    build_from_stored_form,
    find_user_classes_and_scripts,
    identity_form_of_config_part,
    stored_form_of_config_part,
    stored_form_of_trial_config,
)

ROOT = Path(__file__).parent.parent.parent.parent
FROZEN = ROOT / "tests" / "frozen" / "format_1"
OURS = ("dpsweep.",)
GROUPS = {"tuning": "rule"}
"""Groups of conf/ that are called otherwise than what they hold."""


def named(node: Any, family: str) -> Iterator[tuple[str, str]]:
    """Every class of ours that a configuration names, with the family that is expected there."""
    if isinstance(node, list):
        for one in node:
            yield from named(one, family)
    elif isinstance(node, dict):
        if str(node.get("_target_")).startswith(OURS):
            yield node["_target_"], family
        for key, value in node.items():
            yield from named(value, next((name for name in tags.PARTS if key == name), family))


def of_conf() -> list[tuple[str, str]]:
    found = set()
    for path in sorted((ROOT / "conf").rglob("*.yaml")):
        group = path.relative_to(ROOT / "conf").parts[0]
        form = yaml.safe_load(path.read_text())
        if path.parent.name == "conf":
            form.pop("hydra", None)  # its callbacks are stored nowhere
        for target, _ in named(form, group):
            found.add((target, GROUPS.get(group, group)))
    return sorted(found)


def test_every_class_that_conf_names_has_a_tag() -> None:
    targets = of_conf()
    assert len({target for target, _ in targets}) > 60
    for target, _ in targets:
        assert tags.tag_of_path(target) in tags.HOMES, f"{target} has no tag in accounting/stored_names/tags.toml"


@pytest.mark.parametrize(
    "group", ["tuning", "policy", "trainer", "sampler", "lr_schedule", "clip_schedule", "score", "loss"]
)
def test_the_classes_of_a_group_are_of_one_family(group: str) -> None:
    for path in (ROOT / "conf" / group).glob("*.yaml"):
        target = yaml.safe_load(path.read_text()).get("_target_")
        assert target is None or tags.FAMILY_OF[tags.tag_of_path(target) or ""] == GROUPS.get(group, group)


@pytest.mark.parametrize("tag", tags.HOMES)
def test_every_tag_has_a_class(tag: str) -> None:
    assert tag == tag.lower()
    assert tag.isidentifier()
    assert callable(tags.class_of_tag(tag, tags.FAMILY_OF[tag]))


@pytest.mark.parametrize(("family", "table"), [("rule", RULES), ("policy", policies())])
def test_tables_of_the_core_have_the_tags_of_their_family(family: str, table: Mapping[str, type]) -> None:
    assert {tag for tag, own in tags.FAMILY_OF.items() if own == family} == set(table)
    assert all(tags.class_of_tag(tag, family) is kind for tag, kind in table.items())


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """A class of ours after a move; its old module is gone as far as this test can tell."""

    batch_size: int


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Poisson sampler, at another path."""
    module = ModuleType("dpsweep_of_tomorrow")
    module.__dict__["Elsewhere"] = Elsewhere
    path = f"{module.__name__}.Elsewhere"
    monkeypatch.setitem(tags.HOMES, "poisson", path)
    monkeypatch.setitem(tags._TAGS, path, "poisson")
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.parametrize("name", ["composition", "private_selection"])
@pytest.mark.usefixtures("moved")
def test_moving_a_module_changes_no_identity(name: str, tmp_path: Path) -> None:
    form = json.loads((FROZEN / name / "plan.json").read_text())
    plan = Plan.read(FROZEN / name / "plan.json")
    assert plan.id == form["id"]
    assert [trial.id for trial in plan.trials] == [trial["id"] for block in form["blocks"] for trial in block]
    assert plan.trials[0].config["sampler"] == {"kind": "poisson", "batch_size": 720}
    plan.write(tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    assert "_target_" not in text
    again = Plan.read(tmp_path / "plan.json")
    assert (again.id, again) == (form["id"], plan)
    today = {"_target_": "dpsweep_of_tomorrow.Elsewhere", "batch_size": 720}
    point = plan.trials[0]
    assert replace(point, config={**point.config, "sampler": today}).id == point.id
    assert build_from_stored_form(point.config["sampler"], "sampler") == Elsewhere(batch_size=720)


def test_identities_tell_classes_apart() -> None:
    sampler = Proposed(trials=3, sampler={"_target_": "optuna.samplers.TPESampler"})
    assert sampler.fields_for_identity() == sampler.to_json()
    own = Proposed(
        trials=3,
        sampler={"_target_": "dpsweep.sweeper.planning.linear_scaling.LinearScaling", "noise_multipliers": [2]},
    )
    assert own.sampler == {"kind": "linear_scaling", "noise_multipliers": [2]}
    assert own.fields_for_identity()["sampler"] == own.sampler


def test_policies_are_stored_by_their_tags() -> None:
    budget = Guarantee(epsilon=1.0, delta=0.1, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    balance = Balance(budget=budget, policy=Addition(), reserved={})
    assert balance.to_json()["policy"] == {"kind": "addition"}
    assert Balance.from_json(balance.to_json()) == balance


def test_what_the_users_classes_are_given_is_theirs() -> None:
    """`kind` is a word like any other there, and our classes in it keep their tags."""
    net = {
        "_target_": "my_model.Net",
        "kind": "linear",
        "head": {"_target_": "dpsweep.trainers.models.fully_connected.linear"},
        "more": {"kind": "logistic"},
    }
    written = stored_form_of_config_part(net, "model")
    assert written == net | {"head": {"_target_": "linear"}}
    assert stored_form_of_config_part(written, "model") == written
    assert identity_form_of_config_part(written, "model") == written
    assert find_user_classes_and_scripts({"model": written}) == {"my_model.Net"}


@pytest.mark.parametrize(
    ("part", "node"),
    [
        ("trainer", {"_target_": "dpsweep.trainers.methods.dpsgd.NoSuch"}),
        ("trainer", {"_target_": "dpsweep.accounting.ledger.book.subtract_decimals_exactly"}),
        ("trainer", {"kind": "poisson"}),
        ("trainer", {"kind": "nosuch"}),
        ("trainer", {"kind": 3}),
        ("trainer", {"_target_": None}),
        ("trainer", {"_target_": "os"}),
        ("model", {"_target_": "x import y; z.a"}),
        ("model", {"_target_": "my_model.Net", "head": {"_target_": "dpsweep.sweeper.commands.cli.main"}}),
        ("lr_schedule", {"kind": "warm_up_lr", "then": {"kind": "poisson"}}),
        ("dataset", {"kind": "torch_dataset", "source": {"kind": "table"}}),
        ("dataset", {"kind": "sst2_tokens", "vocabulary": {"kind": "table"}}),
        ("sampler", {"_target_": "dpsweep.trainers.declarations.batch_sampling.Poisson", "kind": "shuffle"}),
    ],
)
def test_a_class_without_a_tag_or_of_another_family_is_refused(part: str, node: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"^Expected .*[^.]\.$") as refused:
        Trial(method="dpsgd", axes={}, config={part: node}, event=Composition().event([]))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "config",
    [
        {"_target_": "os.system", "command": "touch canary"},
        {"_target_": "subprocess.run", "args": ["touch", "canary"]},
        {"_target_": "antigravity.fly"},
        {"kind": "os.system"},
        {"kind": "addition"},
        {"kind": "final", "rule": {"_target_": "antigravity.fly"}},
        {"kind": "final", "rule": {"kind": "addition"}},
        {"kind": "final", "rule": {}},
        {"kind": "final", "rule": "antigravity.fly"},
        {"kind": "final", "rule": None},
        {"kind": "composition", "command": "touch canary"},
        {"kind": "composition", "_args_": ["touch canary"]},
        {"kind": "composition", "_partial_": True},
        {"kind": None},
        {"kind": []},
        {},
        [],
        None,
        "os.system",
    ],
)
def test_nothing_is_built_where_a_rule_is_read_but_rules(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="to name a selection rule"):
        rule_from_config(config)
    assert not (tmp_path / "canary").exists()
    assert "antigravity" not in sys.modules


def test_what_was_stored_is_stored_again_as_it_is() -> None:
    for name in ("composition", "private_selection"):
        for trial in Plan.read(FROZEN / name / "plan.json").trials:
            assert stored_form_of_trial_config(trial.config) == trial.config
