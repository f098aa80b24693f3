"""Every method of conf/trainer learns real digits at mild noise, in a second or less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from dpsweep.accounting.stored_names.stored_classes import build_from_stored_form
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant, Cosine
from dpsweep.trainers.declarations.scores import count_right_and_wrong_units
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.methods.updates import HalfSteps
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training.run import Run
from tests.trainers.single_run import train

CONF = Path(__file__).parents[3] / "conf"
NAMES = sorted({path.stem for path in (CONF / "trainer").glob("*.yaml")} - {"output_perturbation", "script", "by_grid"})
"""All methods but one, which takes no steps, and scripts, which train themselves."""


@pytest.fixture(scope="module")
def digits() -> Records:
    private, _ = instantiate(OmegaConf.load(CONF / "dataset" / "digits.yaml").dataset).load(None)
    return private


def accuracy(digits: Records, name: str, lr: float) -> float:
    """The accuracy on its own training records after 30 steps; the run has a seed."""
    trainer = build_from_stored_form(OmegaConf.to_container(at_rate(name, lr), resolve=True), "trainer")
    run = Run(
        trainer=trainer,
        sampler=Poisson(batch_size=600),
        schedule=Constant() if isinstance(trainer.update, HalfSteps) else Cosine(final=0.01),
        noise_multiplier=0.0 if trainer.noiseless else 2.0,
        steps=30,
        train_records=1797,
    )
    model = build_model_with_seeded_weights(lambda: logistic((1, 8, 8), 10), 1)
    train(run, model, Fused(), digits, reproducible_streams(1, "one"), device="cpu")
    right, wrong = count_right_and_wrong_units(model, digits, "cpu", np.random.default_rng(0))
    return right / (right + wrong)


def at_rate(name: str, lr: float) -> DictConfig:
    """A method's file with this learning rate, with interpolations as a whole configuration has them."""
    whole = OmegaConf.create({"trainer": OmegaConf.load(CONF / "trainer" / f"{name}.yaml")})
    return OmegaConf.merge(whole, {"trainer": {"lr": lr}}).trainer


@pytest.mark.parametrize("name", NAMES)
def test_every_method_learns_digits(digits: Records, name: str) -> None:
    """Chance is 0.1; at one of its default learning rates, of which a large one is tried first."""
    rates = sorted(OmegaConf.load(CONF / "trainer" / "axes" / f"{name}.yaml")[name]["trainer.lr"])
    assert any(accuracy(digits, name, lr) > 0.75 for lr in sorted(rates, key=lambda lr: abs(rates.index(lr) - 2)))
