"""The noise of steps: as declared in every coordinate, independent between steps and runs, also in empty batches."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm

from dpsweep.accounting.events.build import are_same_events, poisson_gaussian, repeat
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.models.fully_connected import one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import Streams, lattice_spacing, reproducible_streams, secret_streams
from dpsweep.trainers.training.run import BatchSizes
from tests.margins import FALSE_ALARM, count_range, deviation_range, deviations, distribution_margin, joint
from tests.trainers.loops import CLASSES, RUN, SHAPE, TRAINERS, flat, fresh_model, some_records, some_units, trained
from tests.trainers.single_run import train


def noise_only(trainer, steps: int, streams: Streams, noise_multiplier: float = 0.7) -> np.ndarray:
    """The noise [steps, P] of a run without records, in units of the declared standard deviation."""
    schedule = Constant()
    run = replace(RUN, trainer=trainer, steps=steps, schedule=schedule, noise_multiplier=noise_multiplier)
    model = build_model_with_seeded_weights(lambda: one_hidden(SHAPE, CLASSES, width=20), 11)
    path = [flat(model).double()]
    train(
        run,
        model.double(),
        Opacus(),
        some_records(0),
        streams,
        device="cpu",
        on_step=lambda step: path.append(flat(model)),
    )
    std = trainer.lr / run.sampler.batch_size * noise_multiplier * trainer.transform.norm_bound
    return -np.diff(torch.stack(path).numpy(), axis=0) / std


@pytest.mark.randomized(
    draws="secret noise of 400 steps",
    bound="exact normal, chi-square and binomial tails, Massart's inequality",
    false_alarm=5 * FALSE_ALARM,
)
@pytest.mark.parametrize("trainer", TRAINERS[:2], ids=lambda trainer: trainer.label)
@pytest.mark.parametrize("noise_multiplier", [0.7, 3.0])
def test_noise_has_the_declared_law_in_every_coordinate(trainer, noise_multiplier) -> None:
    steps = 400
    noise = noise_only(trainer, steps, secret_streams(), noise_multiplier)
    assert abs(noise.mean()) < deviations() / math.sqrt(noise.size)
    low, high = deviation_range(noise.size)
    assert low < math.sqrt((noise**2).mean()) < high
    assert 0.97 < low < high < 1.03, "noise that is smaller by 3 % is out of this range"
    low, high = deviation_range(steps, noise.shape[1])
    sizes = np.sqrt((noise**2).mean(axis=0))
    assert low < sizes.min() <= sizes.max() < high
    assert low > 0.6, "a coordinate with half of the noise is out of this range"
    levels = np.sort(noise, axis=None)
    ranks = np.arange(1, levels.size + 1) / levels.size
    std = noise_multiplier * trainer.transform.norm_bound
    half_a_cell = lattice_spacing(std) / (2 * std) * norm.pdf(0)
    assert np.abs(ranks - norm.cdf(levels)).max() < distribution_margin(levels.size) + half_a_cell + 1 / levels.size
    low, high = count_range(levels.size, 2 * norm.sf(3))
    assert 0 < low <= (np.abs(levels) > 3).sum() <= high, "no tail is cut off"


@pytest.mark.randomized(
    draws="secret noise of two runs of 400 steps", bound="exact normal tails", false_alarm=3 * FALSE_ALARM
)
def test_noise_is_independent_between_steps_coordinates_and_trials() -> None:
    trainer, steps = TRAINERS[0], 400
    one, two = noise_only(trainer, steps, secret_streams()), noise_only(trainer, steps, secret_streams())
    assert abs(joint(one, two)) < deviations()
    for noise in (one, one.T):
        for first in (0, 1):
            later = noise[first + 1 :: 2]
            assert abs(joint(noise[first::2][: len(later)], later)) < deviations(2), "of neighbours"
    assert len(np.unique(np.concatenate([one, two]), axis=0)) == 2 * steps


def test_empty_batches_are_steps_with_noise() -> None:
    run = replace(RUN, sampler=Poisson(batch_size=1), train_records=10**6, steps=20)
    called: list[int] = []
    path, outcome = trained(run, some_records(3), reproducible_streams(1, "records"), on_step=called.append)
    assert outcome.batch_sizes == BatchSizes(smallest=0, mean=0.0, largest=0)
    assert are_same_events(outcome.event, repeat(poisson_gaussian(sample_rate=1e-6, noise_multiplier=0.7), 20))
    assert not torch.equal(path, flat(fresh_model()))
    assert called == list(range(1, 21))


def test_empty_batches_of_units_are_steps_with_noise() -> None:
    run = replace(RUN, sampler=Poisson(batch_size=1), train_records=10**6, steps=3)
    path, outcome = trained(run, some_units(3), reproducible_streams(1, "units"))
    assert outcome.batch_sizes == BatchSizes(smallest=0, mean=0.0, largest=0)
    assert are_same_events(outcome.event, run.event)
    assert not torch.equal(path, flat(fresh_model()))
