"""What tests of the training loop train: a softmax regression on a few records, by each method."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dpsweep.trainers.data.records import Records, Units
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import StepDecay
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.methods.named_methods import (
    DpAdam,
    DpAdamBc,
    DpAdamWosm,
    DpMomentum,
    DpNadam,
    DpNsgd,
    DpSgd,
    ProjectedDpSgd,
)
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import Streams, standard_normal
from dpsweep.trainers.training.run import Run
from tests.trainers.single_run import train

SHAPE, CLASSES, NOMINAL = (6,), 3, 90
TRAINERS = [
    DpSgd(lr=0.5, clip_norm=0.3),
    DpNsgd(lr=0.5, regularizer=0.2),
    DpAdam(lr=0.05, clip_norm=0.3, beta1=0.8, beta2=0.9, eps=1e-4),
    DpAdamBc(lr=0.05, clip_norm=0.3, beta1=0.8, beta2=0.9, least=1e-4),
    DpMomentum(lr=0.5, clip_norm=0.3, momentum=0.8),
    DpNadam(lr=0.05, regularizer=0.2, beta1=0.8, beta2=0.9, eps=1e-4),
    DpAdamWosm(lr=0.05, clip_norm=0.3, beta1=0.8, eps=0.01),
    ProjectedDpSgd(lr=0.5, clip_norm=0.3, radius=1.0),
]
RUN = Run(
    trainer=TRAINERS[0],
    sampler=Poisson(batch_size=30),
    schedule=StepDecay(milestones=[0.5], factors=[0.1]),
    noise_multiplier=0.7,
    steps=4,
    train_records=NOMINAL,
)
each_trainer = pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.label)


def some_records(available: int) -> Records:
    generator = torch.Generator().manual_seed(available)
    labels = torch.randint(CLASSES, (available,), generator=generator)
    features = torch.randn(available, *SHAPE, generator=generator)
    features[torch.arange(available), labels] += 2.0
    return Records(features=features, labels=labels)


def some_units(available: int) -> Records:
    """Units of 1 to 4 records, in mixed order."""
    rng = np.random.default_rng(5)
    of = rng.permutation(np.repeat(np.arange(available), rng.integers(1, 5, size=available)))
    names = tuple(f"unit {place}".encode() for place in range(available))
    return replace(some_records(len(of)), units=Units(names=names, of=of))


def fresh_model() -> nn.Module:
    return build_model_with_seeded_weights(lambda: logistic(SHAPE, CLASSES), 11)


def flat(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def trained(run: Run, records: Records, streams: Streams, **options) -> tuple[Tensor, object]:
    model = fresh_model()
    outcome = train(run, model, Opacus(), records, streams, device="cpu", **options)
    return flat(model), outcome


def noisy_by_hand(total: Tensor, std: float, streams: Streams) -> Tensor:
    """The sum plus noise, rounded to the largest power of two that is at most std / 16."""
    cell = 2.0 ** math.floor(math.log2(std) - 4)
    noise = torch.from_numpy(standard_normal(streams.noise, len(total)))
    return torch.round((total + std * noise) / cell) * cell
