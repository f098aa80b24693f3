"""The training loop: each method's step by hand in float64, its event, its traces."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpsweep.accounting.events.build import are_same_events, leaves_with_counts, poisson_gaussian, repeat
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.methods.named_methods import DpAdam, DpSgd, ProjectedDpSgd
from dpsweep.trainers.methods.transforms import LENGTH_SHARE, Normalize
from dpsweep.trainers.methods.updates import Adam, AdamWithoutNoiseBias, AdamWithoutSecondMoments, Momentum
from dpsweep.trainers.randomness import Streams, reproducible_streams, secret_streams
from dpsweep.trainers.training.run import BatchSizes, Run
from tests.trainers.loops import (
    CLASSES,
    NOMINAL,
    RUN,
    TRAINERS,
    each_trainer,
    flat,
    fresh_model,
    noisy_by_hand,
    some_records,
    some_units,
    trained,
)
from tests.trainers.single_run import train


def by_hand(run: Run, records: Records, streams: Streams) -> Tensor:
    """The same run in float64, written out from the papers: gradients, factors, noise and updates."""
    weights = flat(fresh_model()).double()
    trainer, first, second = run.trainer, torch.zeros_like(weights), torch.zeros_like(weights)
    transform, update = trainer.transform, trainer.update
    normalized = isinstance(transform, Normalize)
    for step in range(run.steps):
        drawn, _ = run.sampler.draw_batch_indices(1, len(records), run.train_records, streams.subsampling)
        total = torch.zeros_like(weights)
        for position in drawn:
            gradient = gradient_by_hand(weights, records.features[position].double(), int(records.labels[position]))
            norm = float(gradient.norm())
            if normalized:
                total += gradient * LENGTH_SHARE / (transform.regularizer + norm)
            else:
                total += gradient * min(1.0, LENGTH_SHARE * transform.clip_norm / norm)
        std = run.noise_multiplier * (1.0 if normalized else transform.clip_norm)
        mean = noisy_by_hand(total, std, streams) / run.sampler.batch_size
        if isinstance(update, Adam):
            first = update.beta1 * first + (1 - update.beta1) * mean
            second = update.beta2 * second + (1 - update.beta2) * mean**2
            corrected = (second / (1 - update.beta2 ** (step + 1))).sqrt() + update.eps
            mean = first / (1 - update.beta1 ** (step + 1)) / corrected
        if isinstance(update, AdamWithoutNoiseBias):
            first = update.beta1 * first + (1 - update.beta1) * mean
            second = update.beta2 * second + (1 - update.beta2) * mean**2
            difference = second / (1 - update.beta2 ** (step + 1)) - (std / run.sampler.batch_size) ** 2
            mean = first / (1 - update.beta1 ** (step + 1)) / difference.clamp(min=update.least).sqrt()
        if isinstance(update, Momentum):
            mean = first = update.momentum * first + mean
        if isinstance(update, AdamWithoutSecondMoments):
            first = update.beta1 * first + (1 - update.beta1) * mean
            mean = first / (1 - update.beta1 ** (step + 1)) / (0.7 * 0.3 / 30 + update.eps)
        weights -= trainer.lr * run.schedule.factor(step, run.steps) * (mean + trainer.weight_decay * weights)
        if isinstance(trainer, ProjectedDpSgd):
            weights *= min(1.0, trainer.radius / float(weights.norm()))
    return weights


def gradient_by_hand(weights: Tensor, features: Tensor, label: int) -> Tensor:
    """The gradient of the cross-entropy of a softmax regression: (softmax - one-hot) times (features, 1)."""
    matrix, bias = weights[:-CLASSES].view(CLASSES, -1), weights[-CLASSES:]
    error = torch.softmax(matrix @ features + bias, dim=0)
    error[label] -= 1
    return torch.cat([torch.outer(error, features).flatten(), error])


@each_trainer
@pytest.mark.parametrize("steps", [1, 4])
def test_each_method_takes_the_steps_of_its_paper(trainer, steps) -> None:
    run, records = replace(RUN, trainer=trainer, steps=steps), some_records(80)
    ours, _ = trained(run, records, reproducible_streams(1, "trial"))
    theirs = by_hand(run, records, reproducible_streams(1, "trial"))
    start = flat(fresh_model()).double()
    assert float((ours.double() - theirs).norm()) < 1e-5 * float((theirs - start).norm())


@pytest.mark.parametrize("trainer", [DpSgd, partial(DpAdam, beta1=0.8, beta2=0.9, eps=1e-4)], ids=["DP-SGD", "DP-Adam"])
def test_weights_decay_by_their_own_share_of_the_rate(trainer) -> None:
    run = replace(RUN, trainer=trainer(lr=0.5, clip_norm=0.3, weight_decay=0.2))
    records = some_records(80)
    ours, _ = trained(run, records, reproducible_streams(1, "trial"))
    theirs = by_hand(run, records, reproducible_streams(1, "trial"))
    plain = by_hand(replace(run, trainer=trainer(lr=0.5, clip_norm=0.3)), records, reproducible_streams(1, "trial"))
    assert float((ours.double() - theirs).norm()) < 1e-5 * float(theirs.norm())
    assert float(theirs.norm()) < 0.95 * float(plain.norm())


def test_the_hand_written_gradient_is_the_gradient() -> None:
    model, records = fresh_model().double(), some_records(1)
    cross_entropy(model(records.features.double()), records.labels).backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    ours = gradient_by_hand(flat(model), records.features[0].double(), int(records.labels[0]))
    assert torch.allclose(ours, expected)


@pytest.mark.parametrize("trainer", TRAINERS[:2], ids=lambda trainer: trainer.label)
def test_units_are_drawn_and_bounded_as_wholes(trainer) -> None:
    """One step in float64: one coin a unit, the mean of its records' gradients, one factor."""
    run, records = replace(RUN, trainer=trainer, steps=1), some_units(80)
    ours, outcome = trained(run, records, reproducible_streams(1, "trial"), chunk=5)
    streams, weights = reproducible_streams(1, "trial"), flat(fresh_model()).double()
    drawn = RUN.sampler.draw_batch_indices(1, 80, NOMINAL, streams.subsampling)[0]
    total = torch.zeros_like(weights)
    for unit in drawn:
        own = np.flatnonzero(records.units.of == unit)
        rows = [gradient_by_hand(weights, records.features[r].double(), int(records.labels[r])) for r in own]
        mean = torch.stack(rows).mean(dim=0)
        norm = float(mean.norm())
        transform = trainer.transform
        normalized = isinstance(transform, Normalize)
        bound = LENGTH_SHARE * transform.norm_bound
        total += mean * (bound / (transform.regularizer + norm) if normalized else min(1.0, bound / norm))
    factor = run.schedule.factor(0, 1)
    step = trainer.lr * factor * noisy_by_hand(total, 0.7 * trainer.transform.norm_bound, streams) / 30
    assert float((ours.double() - (weights - step)).norm()) < 1e-5 * float(step.norm())
    assert outcome.batch_sizes == BatchSizes(smallest=len(drawn), mean=float(len(drawn)), largest=len(drawn))
    assert are_same_events(outcome.event, run.event)


@each_trainer
def test_what_ran_is_what_was_declared(trainer) -> None:
    run = replace(RUN, trainer=trainer)
    _, outcome = trained(run, some_records(80), reproducible_streams(1, "one"))
    assert are_same_events(outcome.event, run.event)
    assert are_same_events(outcome.event, repeat(poisson_gaussian(sample_rate=1 / 3, noise_multiplier=0.7), 4))
    assert outcome.steps == 4
    assert not outcome.diverged


@pytest.mark.parametrize(
    "other",
    [{"noise_multiplier": 0.6}, {"sampler": Poisson(batch_size=31)}, {"steps": 5}, {"train_records": 91}],
    ids=lambda other: next(iter(other)),
)
def test_what_ran_is_not_what_was_not_declared(other) -> None:
    _, outcome = trained(replace(RUN, **other), some_records(80), reproducible_streams(1, "another"))
    assert not are_same_events(outcome.event, RUN.event)


def test_the_true_number_of_records_enters_neither_the_event_nor_the_divisor() -> None:
    events = {
        leaves_with_counts(trained(RUN, some_records(size), reproducible_streams(1, "a third"))[1].event)
        for size in (0, 80, 90, 100)
    }
    assert events == {leaves_with_counts(RUN.event)}
    doubled = replace(RUN, sampler=Poisson(batch_size=60), train_records=2 * NOMINAL)
    moves = [
        trained(replace(run, noise_multiplier=0), some_records(80), reproducible_streams(1, "trial"))[0]
        - flat(fresh_model())
        for run in (replace(RUN, steps=1), replace(doubled, steps=1))
    ]
    assert torch.allclose(moves[0], 2 * moves[1], rtol=1e-3, atol=1e-6)


def test_batch_sizes_are_summarised() -> None:
    streams = reproducible_streams(3, "trial")
    sizes = [len(RUN.sampler.draw_batch_indices(1, 80, NOMINAL, streams.subsampling)[0]) for _ in range(RUN.steps)]
    _, outcome = trained(RUN, some_records(80), reproducible_streams(3, "trial"))
    assert outcome.batch_sizes == BatchSizes(smallest=min(sizes), mean=sum(sizes) / 4, largest=max(sizes))
    assert outcome.seconds > 0


@pytest.mark.parametrize("radius", [0.01, 0.5, 100.0])
def test_projected_weights_are_within_their_ball_after_every_step(radius) -> None:
    """The first step leaves the small balls; in the large one, which no step leaves, the method is DP-SGD."""
    free = replace(RUN, trainer=DpSgd(lr=4.0, clip_norm=0.3), noise_multiplier=5.0, steps=20)
    confined = replace(free, trainer=ProjectedDpSgd(lr=4.0, clip_norm=0.3, radius=radius))
    paths: list[list[Tensor]] = []
    for run in (free, confined):
        model, path = fresh_model(), []
        streams, look = reproducible_streams(1, "trial"), partial(flat, model)
        train(
            run,
            model,
            Opacus(),
            some_records(80),
            streams,
            device="cpu",
            on_step=lambda _, p=path, f=look: p.append(f()),
        )
        paths.append(path)
    norms = [float(weights.double().norm()) for weights in paths[1]]
    assert max(norms) <= radius * (1 + 1e-6)
    if radius < 1:
        assert norms[0] == pytest.approx(radius, rel=1e-6)
    else:
        assert all(torch.equal(mine, other) for mine, other in zip(*paths, strict=True))


@pytest.mark.parametrize(
    "wild",
    [DpSgd(lr=3e38, clip_norm=1e6), ProjectedDpSgd(lr=3e38, clip_norm=1e6, radius=1.0)],
    ids=lambda one: one.label,
)
def test_divergence_is_flagged_and_stops_the_run(wild) -> None:
    run = replace(RUN, trainer=wild, steps=10)
    weights, outcome = trained(run, some_records(80), reproducible_streams(1, "a fourth"))
    assert outcome.diverged
    assert outcome.steps < 10
    assert are_same_events(outcome.event, replace(run, steps=outcome.steps).event)
    assert not weights.isfinite().all()


@each_trainer
def test_a_broken_record_does_not_break_the_run(trainer) -> None:
    records = some_records(80)
    features = records.features.clone()
    features[::5] = torch.tensor([math.nan, math.inf, -math.inf, 3e38]).repeat(4)[:, None]
    broken = replace(records, features=features)
    run = replace(RUN, trainer=trainer, sampler=Poisson(batch_size=NOMINAL))
    weights, outcome = trained(run, broken, reproducible_streams(1, "a fifth"))
    assert not outcome.diverged
    assert bool(weights.isfinite().all())
    assert are_same_events(outcome.event, run.event)


def test_no_global_generator_is_used_or_changed() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    first, _ = trained(RUN, some_records(80), reproducible_streams(1, "trial"))
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])
    assert before[2] == random.getstate()
    torch.rand(3), np.random.rand(3), random.random()
    second, _ = trained(RUN, some_records(80), reproducible_streams(1, "trial"))
    assert torch.equal(first, second)
    torch.set_rng_state(before[0])
    random.setstate(before[2])


@pytest.mark.randomized(
    draws="secret noise of two runs", bound="two keys of 128 bits are the same", false_alarm=2.0**-128
)
def test_secret_runs_differ_and_the_seed_and_the_trial_both_matter() -> None:
    run = partial(trained, RUN, some_records(80))
    assert not torch.equal(run(secret_streams())[0], run(secret_streams())[0])
    one = run(reproducible_streams(1, "trial"))[0]
    assert not torch.equal(one, run(reproducible_streams(2, "trial"))[0])
    assert not torch.equal(one, run(reproducible_streams(1, "other trial"))[0])


@pytest.mark.parametrize("chunk", [1, 7, None])
def test_the_chunk_does_not_matter(chunk) -> None:
    run = partial(trained, RUN, some_records(80))
    whole = run(reproducible_streams(1, "trial"), chunk=1000)[0]
    assert torch.allclose(run(reproducible_streams(1, "trial"), chunk=chunk)[0], whole, rtol=1e-4, atol=1e-6)


@each_trainer
def test_training_learns(trainer) -> None:
    records = some_records(900)
    run = Run(
        trainer=replace(trainer, lr=4 * trainer.lr),
        sampler=Poisson(batch_size=300),
        schedule=Constant(),
        noise_multiplier=1.0,
        steps=30,
        train_records=900,
    )
    model = fresh_model()
    before = float((model(records.features).argmax(dim=1) == records.labels).double().mean())
    train(run, model, Opacus(), records, reproducible_streams(1, "a sixth"), device="cpu")
    after = float((model(records.features).argmax(dim=1) == records.labels).double().mean())
    assert after > max(0.75, before)


def test_a_model_that_mixes_examples_is_refused_before_any_record_is_drawn() -> None:
    streams = reproducible_streams(1, "trial")
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, CLASSES))
    with pytest.raises(ValueError, match=r"^Expected 0=BatchNorm1d to treat every example on its own"):
        train(RUN, model, Opacus(), some_records(80), streams, device="cpu")
    untouched = reproducible_streams(1, "trial")
    assert streams.subsampling.random() == untouched.subsampling.random()
    assert streams.noise.random() == untouched.noise.random()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@each_trainer
def test_a_gpu_takes_the_same_steps(trainer) -> None:
    run, records, model = replace(RUN, trainer=trainer), some_records(80), fresh_model()
    state = torch.cuda.get_rng_state()
    train(run, model, Opacus(), records, reproducible_streams(1, "trial"), device="cuda")
    assert torch.equal(state, torch.cuda.get_rng_state())
    on_cpu, _ = trained(run, records, reproducible_streams(1, "trial"))
    assert torch.allclose(flat(model).cpu(), on_cpu, rtol=1e-3, atol=1e-5)
