"""Every YAML of the groups that trainers implement is instantiated as it stands, and exercised."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from dpsweep.accounting.events.build import leaves_with_counts
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.stored_names.tags import FAMILY_OF, HOMES
from dpsweep.trainers.methods.method import Method
from dpsweep.trainers.methods.named_methods import DpNsgd
from dpsweep.trainers.models.checks import require_separate_examples
from dpsweep.trainers.models.weights import build_model_with_seeded_weights

CONF = Path(__file__).parents[2] / "conf"
ROOT = CONF.parent / "trainers"


def configurations(group: str) -> list[pytest.param]:
    found = sorted((CONF / group).glob("*.yaml"))
    assert found
    return [pytest.param(OmegaConf.load(path), id=f"{group}/{path.stem}") for path in found]


@pytest.mark.parametrize("configuration", [one for one in configurations("trainer") if one.id != "trainer/by_grid"])
def test_trainers(configuration) -> None:
    if OmegaConf.missing_keys(configuration):
        configuration = OmegaConf.merge(configuration, {"script": "train.py"})
    trainer = instantiate(configuration)
    assert is_dataclass(trainer)
    private = "DP" in trainer.label or trainer.label == "output perturbation"
    unnamed = trainer.label == {field.name: field.default for field in fields(Method)}["label"]
    assert unnamed or private != trainer.noiseless, "whose name says private adds noise"
    factors = trainer.transform.factors(torch.tensor([0.0, 1e30]))
    assert float(factors[1]) * 1e30 <= trainer.transform.norm_bound
    gradient = torch.ones(3)
    assert trainer.update.direction(trainer.update.start(gradient), gradient, torch.ones(1))[1].shape == (3,)
    assert trainer == instantiate(configuration)
    assert hash(trainer) == hash(instantiate(configuration))


def test_auto_s_is_dpnsgd_by_another_name() -> None:
    trainer = instantiate(OmegaConf.load(CONF / "trainer" / "auto_s.yaml"))
    assert trainer == DpNsgd(lr=8.0, regularizer=0.01)
    norms = torch.tensor([0.0, 0.01, 0.99], dtype=torch.float64)
    assert trainer.transform.factors(norms).tolist() == pytest.approx([100.0, 50.0, 1.0], rel=1e-3)


@pytest.mark.parametrize("configuration", configurations("model"))
def test_models(configuration) -> None:
    configuration = configuration.get("model", configuration)
    shape, classes = (3, 32, 32), 1 if configuration["_target_"].endswith("linear") else 10
    if OmegaConf.missing_keys(configuration):
        pytest.skip("asks the user for a file")
    if "weights" in configuration:  # of words, from a package that not everybody has
        pytest.importorskip(configuration.weights.package)
        shape = (16,)
    model = build_model_with_seeded_weights(lambda: instantiate(configuration, shape=shape, classes=classes), 1)
    require_separate_examples(model, shape)


@pytest.mark.parametrize("configuration", configurations("sampler"))
def test_samplers(configuration) -> None:
    sampler = instantiate(configuration)
    assert len(leaves_with_counts(sampler.event_per_period(records=10_000, noise_multiplier=1.0))) == 1


@pytest.mark.parametrize(
    "configuration", [one for one in configurations("lr_schedule") if one.id != "lr_schedule/auto"]
)
def test_schedules(configuration) -> None:
    schedule = instantiate(configuration)
    assert all(0 < schedule.factor(step, 100) <= 1 for step in range(100))
    assert hash(schedule) == hash(instantiate(configuration))


@pytest.mark.parametrize("configuration", configurations("clip_schedule"))
def test_bounds(configuration) -> None:
    bounds = instantiate(configuration)
    factors = [bounds.factor(step, 1000) for step in range(1000)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] == 1
    assert 0 < factors[-1] <= 1
    assert hash(bounds) == hash(instantiate(configuration))
    assert bounds == instantiate(configuration)


def test_paper_a_drops_at_epochs_50_and_75_of_100() -> None:
    schedule = instantiate(OmegaConf.load(CONF / "lr_schedule" / "paper_a.yaml"))
    assert [schedule.factor(50 * epoch, 5000) for epoch in (0, 49, 50, 74, 75, 99)] == [
        1,
        1,
        0.1,
        0.1,
        0.01,
        0.01,
    ]


@pytest.mark.parametrize("configuration", configurations("score"))
def test_scores(configuration) -> None:
    score = instantiate(configuration)
    assert 0 < score.train_records(1000, Adjacency.ADD_OR_REMOVE_ONE) <= 1000


@pytest.mark.parametrize("configuration", configurations("engine"))
def test_engines(configuration) -> None:
    assert callable(instantiate(configuration).bounded_gradient_sum_and_norms)


CHOSEN_BY_A_WORD = {
    "generated": "`dpsweep rehearse` puts it in the place of the data set",
    "final": "`final=true` wraps another rule",
    **dict.fromkeys(("auroc", "balanced_accuracy", "f1", "sensitivity", "specificity"), "`score.metric=` names it"),
    "unscored": "a card takes the place of a final run's own score",
    "method": "a YAML of one's own composes it (docs/contributing.md)",
    **{tag: f"as a method's {family}" for tag, family in FAMILY_OF.items() if family in ("transform", "update")},
}
"""Tags of classes that no YAML names, and what does."""


def test_every_class_with_a_tag_can_be_configured() -> None:
    """It is named by a YAML, so sweeps can reach it, and every function that makes a model has a tag."""
    targets = {
        name for path in CONF.rglob("*.yaml") for name in targets_of(OmegaConf.to_container(OmegaConf.load(path)))
    }
    assert {tag for tag, home in HOMES.items() if home not in targets} == set(CHOSEN_BY_A_WORD)
    for path in (ROOT / "models").glob("*.py"):
        functions = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        assert path.stem not in functions or f"dpsweep.trainers.models.{path.stem}.{path.stem}" in HOMES.values()


def targets_of(node: Any) -> Iterator[str]:
    """Every `_target_` in a configuration."""
    if isinstance(node, dict):
        if isinstance(node.get("_target_"), str):
            yield node["_target_"]
        yield from (name for value in node.values() for name in targets_of(value))
    elif isinstance(node, list):
        yield from (name for value in node for name in targets_of(value))
