"""Every YAML of the groups that trainers implement is instantiated as it stands, and exercised."""

from __future__ import annotations

import ast
from dataclasses import is_dataclass
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from accounting.events.build import flatten
from accounting.guarantee import Adjacency
from trainers.methods.dpnsgd import DpNsgd
from trainers.methods.interface import is_noiseless
from trainers.models.checks.modules import refuse_mixing
from trainers.models.initialize import build

CONF = Path(__file__).parents[2] / "conf"
ROOT = CONF.parent / "trainers"


def configurations(group: str) -> list[pytest.param]:
    found = sorted((CONF / group).glob("*.yaml"))
    assert found
    return [pytest.param(OmegaConf.load(path), id=f"{group}/{path.stem}") for path in found]


@pytest.mark.parametrize("configuration", configurations("trainer"))
def test_trainers(configuration) -> None:
    trainer = instantiate(configuration)
    assert is_dataclass(trainer)
    private = "DP" in trainer.label or trainer.label == "output perturbation"
    assert private != is_noiseless(trainer), "whose name says private adds noise"
    factors = trainer.transform.factors(torch.tensor([0.0, 1e30]))
    assert float(factors[1]) * 1e30 <= trainer.transform.bound
    gradient = torch.ones(3)
    assert trainer.update.direction(trainer.update.start(gradient), gradient, torch.ones(1))[1].shape == (3,)
    assert trainer == instantiate(configuration)
    assert hash(trainer) == hash(instantiate(configuration))


def test_auto_s_is_dpnsgd_by_another_name() -> None:
    trainer = instantiate(OmegaConf.load(CONF / "trainer" / "auto_s.yaml"))
    assert trainer == DpNsgd(lr=0.5, regularizer=0.01)
    norms = torch.tensor([0.0, 0.01, 0.99], dtype=torch.float64)
    assert trainer.transform.factors(norms).tolist() == pytest.approx([100.0, 50.0, 1.0], rel=1e-6)


@pytest.mark.parametrize("configuration", configurations("model"))
def test_models(configuration) -> None:
    shape, classes = (3, 32, 32), 1 if configuration["_target_"].endswith("linear") else 10
    if OmegaConf.missing_keys(configuration):
        pytest.skip("asks the user for a file")
    if "weights" in configuration:  # of words, from a package that not everybody has
        pytest.importorskip(configuration.weights.package)
        shape = (16,)
    model = build(lambda: instantiate(configuration, shape=shape, classes=classes), 1)
    refuse_mixing(model, shape)


@pytest.mark.parametrize("configuration", configurations("sampler"))
def test_samplers(configuration) -> None:
    sampler = instantiate(configuration)
    assert len(flatten(sampler.event(records=10_000, noise_multiplier=1.0))) == 1


@pytest.mark.parametrize("configuration", configurations("schedule"))
def test_schedules(configuration) -> None:
    schedule = instantiate(configuration)
    assert all(0 < schedule.factor(step, 100) <= 1 for step in range(100))
    assert hash(schedule) == hash(instantiate(configuration))


@pytest.mark.parametrize("configuration", configurations("bounds"))
def test_bounds(configuration) -> None:
    bounds = instantiate(configuration)
    factors = [bounds.factor(step, 1000) for step in range(1000)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] == 1
    assert 0 < factors[-1] <= 1
    assert hash(bounds) == hash(instantiate(configuration))
    assert bounds == instantiate(configuration)


def test_paper_a_drops_at_epochs_50_and_75_of_100() -> None:
    schedule = instantiate(OmegaConf.load(CONF / "schedule" / "paper_a.yaml"))
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
    assert callable(instantiate(configuration).weighted_sum)


def test_every_declaration_that_can_be_configured_is() -> None:
    """A class or function that a YAML could name is named by one, so sweeps can reach it."""
    targets = {OmegaConf.load(path).get("_target_") for path in CONF.rglob("*.yaml")}
    methods = {"dpsgd.DpSgd", "dpnsgd.DpNsgd", "dpadam.DpAdam", "dpmomentum.DpMomentum", "dpnadam.DpNadam"}
    methods |= {
        "adadp.Adadp",
        "dpadamwosm.DpAdamWosm",
        "projected_dpsgd.ProjectedDpSgd",
        "sampling.Poisson",
        "augmentation.ShiftFlip",
    }
    methods |= {"output_perturbation.OutputPerturbation"}
    methods |= {"plain_sgd.PlainSgd", "plain_adam.PlainAdam", "clipped_sgd.ClippedSgd", "normalized_sgd.NormalizedSgd"}
    methods |= {"engines.auto.Auto", "engines.fused.Fused", "engines.opacus.Opacus"}
    methods |= {f"schedules.{name}" for name in ("Constant", "StepDecay", "Cosine", "Cyclic", "WarmUp")}
    methods |= {"scores.PrivateHoldout", "scores.PublicTest", "scores.OnTraining"}
    for path in (ROOT / "models").glob("*.py"):
        functions = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        methods |= {f"models.{path.stem}.{name}" for name in functions if name == path.stem}
    assert {f"trainers.{name}" for name in methods} <= targets
