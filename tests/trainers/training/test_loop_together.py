"""Runs that take their steps together end as each would alone, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from dpsweep.accounting.events.build import are_same_events
from dpsweep.trainers.data.records import Records, Units
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.clip_schedules import CONSTANT, Linear, Noise
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY
from dpsweep.trainers.declarations.lr_schedules import Constant, StepDecay
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.methods.named_methods import (
    DpAdam,
    DpAdamWosm,
    DpMomentum,
    DpNadam,
    DpNsgd,
    DpSgd,
    ProjectedDpSgd,
)
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.models.fully_connected import one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import Streams, reproducible_streams, secret_streams
from dpsweep.trainers.training.batch_and_noise import Batch
from dpsweep.trainers.training.gradient_sums import StackedSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Outcome, Progress, Run
from tests.margins import FALSE_ALARM, deviation_range, deviations, joint
from tests.trainers.single_run import train

SHAPE, CLASSES, NOMINAL = (6,), 3, 90
CELLS = 1e-4  # sums that are rounded differently may, seldom, be noised into neighbouring cells of the lattice
RUN = Run(
    trainer=DpSgd(lr=0.5, clip_norm=0.3),
    sampler=Poisson(batch_size=30),
    schedule=StepDecay(milestones=[0.5], factors=[0.1]),
    noise_multiplier=0.7,
    steps=6,
    train_records=NOMINAL,
)
GRIDS = {
    "DP-SGD": [DpSgd(lr=lr, clip_norm=bound) for lr in (0.1, 1.0) for bound in (0.1, 10.0)],
    "DP-NSGD": [DpNsgd(lr=0.5, regularizer=amount) for amount in (0.01, 0.1, 1.0)],
    "DP-Adam": [DpAdam(lr=0.05, clip_norm=0.3, beta1=beta) for beta in (0.5, 0.9, 0.5)],
    "DP-Momentum": [DpMomentum(lr=0.1, clip_norm=0.3, momentum=share) for share in (0.6, 0.9, 0.6)],
    "DP-NAdam": [DpNadam(lr=lr, regularizer=amount) for lr, amount in ((0.01, 0.01), (0.05, 1.0))],
    "DP-AdamWOSM": [
        DpAdamWosm(lr=lr, clip_norm=bound, beta1=beta, eps=0.01)
        for lr, bound, beta in ((0.05, 0.3, 0.9), (0.01, 3.0, 0.9), (0.05, 0.3, 0.5))
    ],
    "projected DP-SGD": [ProjectedDpSgd(lr=0.5, clip_norm=0.3, radius=size) for size in (0.5, 1.0, 1e3)],
    "confined and free": [ProjectedDpSgd(lr=0.5, clip_norm=0.3, radius=1.0), DpSgd(lr=0.5, clip_norm=0.3)],
    "one": [DpSgd(lr=0.5, clip_norm=0.3)],
}
each_grid = pytest.mark.parametrize("trainers", GRIDS.values(), ids=GRIDS)


def records(available: int = 80) -> Records:
    generator = torch.Generator().manual_seed(available)
    labels = torch.randint(CLASSES, (available,), generator=generator)
    return Records(features=torch.randn(available, *SHAPE, generator=generator), labels=labels)


def fresh(count: int) -> list[nn.Module]:
    return [build_model_with_seeded_weights(lambda: one_hidden(SHAPE, CLASSES, width=5), seed) for seed in range(count)]


def flat(model: nn.Module) -> Tensor:
    return parameters_to_vector(model.parameters()).detach().clone()


def own_streams(count: int) -> list[Streams]:
    return [reproducible_streams(1, f"trial {place}") for place in range(count)]


def together(
    runs: Sequence[Run], streams: Sequence[Streams], data: Records | None = None, **options
) -> tuple[list[Tensor], tuple[Outcome, ...]]:
    models, data = fresh(len(runs)), records() if data is None else data
    sums = StackedSums(stack=Stack.from_model(models[0]), records=data, device="cpu")
    outcomes = train_together(runs, models, sums, data, streams, device="cpu", **options)
    return [flat(model) for model in models], outcomes


def alone(runs: Sequence[Run], streams: Sequence[Streams], **options) -> tuple[list[Tensor], list[Outcome]]:
    models = fresh(len(runs))
    outcomes = [
        train(run, model, Opacus(), records(), own, device="cpu", **options)
        for run, model, own in zip(runs, models, streams, strict=True)
    ]
    return [flat(model) for model in models], outcomes


@each_grid
@pytest.mark.parametrize("batch_size", [6, 30, NOMINAL], ids=["few", "many", "everybody"])
def test_together_is_one_after_the_other_with_the_same_draws(trainers, batch_size) -> None:
    runs = [
        replace(RUN, trainer=trainer, noise_multiplier=0.1 * (place + 1), sampler=Poisson(batch_size=batch_size))
        for place, trainer in enumerate(trainers)
    ]
    ours, said = together(runs, own_streams(len(runs)))
    theirs, told = alone(runs, own_streams(len(runs)))
    for mine, other, start in zip(ours, theirs, map(flat, fresh(len(runs))), strict=True):
        assert float((mine - other).norm()) <= CELLS * float((other - start).norm()) * len(runs) + 1e-6
    for mine, other in zip(said, told, strict=True):
        assert are_same_events(mine.event, other.event)
        assert (mine.steps, mine.batch_sizes, mine.company) == (other.steps, other.batch_sizes, 1)


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("name", ["DP-SGD", "DP-AdamWOSM"])
def test_bounds_fall_together_as_they_do_alone(name, noise) -> None:
    runs = [replace(RUN, trainer=trainer, bounds=Linear(least=0.5, noise=noise)) for trainer in GRIDS[name]]
    (ours, said), (theirs, told) = (how(runs, own_streams(len(runs))) for how in (together, alone))
    for mine, other, start in zip(ours, theirs, map(flat, fresh(len(runs))), strict=True):
        assert float((mine - other).norm()) <= CELLS * float((other - start).norm()) * len(runs) + 1e-6
    assert all(are_same_events(one.event, runs[0].event) for one in (*said, *told))


@pytest.mark.parametrize("bounds", [CONSTANT, Linear(least=0.5)], ids=["constant", "linear"])
def test_what_each_run_realises_is_what_it_declares(bounds) -> None:
    runs = [replace(RUN, noise_multiplier=noise, bounds=bounds) for noise in (0.5, 1.0, 2.0)]
    _, outcomes = together(runs, [reproducible_streams(1, "one")] * 3)
    assert all(are_same_events(outcome.event, run.event) for run, outcome in zip(runs, outcomes, strict=True))
    assert {outcome.steps for outcome in outcomes} == {RUN.steps}


class Spy(StackedSums):
    """The sums, and the units that each run's batch had."""

    def over(self, rows, transforms):
        total = super().over(rows, transforms)

        def spied(weights, batch, shrink):
            parts = [batch.units] * len(weights) if batch.common else np.split(batch.units, np.cumsum(batch.sizes)[:-1])
            SEEN.append([tuple(part.tolist()) for part in parts])
            return total(weights, batch, shrink)

        return spied


SEEN: list[list[tuple[int, ...]]] = []


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("shared_streams", [True, False])
def test_batches_are_each_runs_own_unless_they_are_shared(count, shared_streams) -> None:
    for share in (False, True):
        SEEN.clear()
        models, data = fresh(count), records()
        sums = Spy(stack=Stack.from_model(models[0]), records=data, device="cpu")
        streams = [reproducible_streams(1, "another")] * count if shared_streams else own_streams(count)
        outcomes = train_together([RUN] * count, models, sums, data, streams, device="cpu", share=share)
        assert all((len(set(step)) == 1) == (share or count == 1) for step in SEEN)
        assert len(SEEN) == RUN.steps
        assert [outcome.company for outcome in outcomes] == [count if share else 1] * count
        assert len({step[0] for step in SEEN}) == RUN.steps, "and every step draws anew"


@pytest.mark.randomized(
    draws="secret noise of three runs of 400 steps",
    bound="exact normal and chi-square tails",
    false_alarm=3 * FALSE_ALARM,
)
@pytest.mark.parametrize("shared_streams", [True, False])
def test_noise_is_independent_between_runs_that_share_everything_else(shared_streams) -> None:
    """Without records a step is its noise: 3 x 400 x 53 of them."""
    steps, path = 400, []
    run = replace(RUN, steps=steps, schedule=Constant(), noise_multiplier=2.0)
    models, nobody = fresh(3), records(0)
    streams = [secret_streams()] * 3 if shared_streams else [secret_streams() for _ in range(3)]
    journal = [Every(path=path) for _ in range(3)]
    sums = StackedSums(stack=Stack.from_model(models[0]), records=nobody, device="cpu")
    starts = [flat(model) for model in models]
    train_together([run] * 3, models, sums, nobody, streams, device="cpu", share=True, journals=journal)
    ends = [flat(model) for model in models]
    points = np.stack(
        [
            torch.stack([start, *(one for place, one in path if place is own), end]).double().numpy()
            for start, own, end in zip(starts, journal, ends, strict=True)
        ]
    )
    noise = -np.diff(points, axis=1) / (0.5 / 30 * 2.0 * 0.3)
    assert noise.shape[:2] == (3, steps)
    low, high = deviation_range(noise.size)
    assert low < np.sqrt((noise**2).mean()) < high
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert abs(joint(noise[one], noise[two])) < deviations(3)
    for first in (0, 1):
        later = noise[:, first + 1 :: 2]
        assert abs(joint(noise[:, first::2][:, : later.shape[1]], later)) < deviations(2), "of one step and the next"


@dataclass(eq=False)
class Every:
    """A journal of stretches of one step each, and the weights after each."""

    path: list[tuple[Every, Tensor]]

    def mark_next_interval(self, missing: int) -> int:
        return 1

    def save_progress(self, progress: Progress) -> None:
        self.path.append((self, progress.weights.clone()))


@dataclass
class Notes:
    """A journal in memory: stretches of `every` steps, and copies of what was kept."""

    every: int
    stretches: list[int] = field(default_factory=list)
    kept: list[Progress] = field(default_factory=list)

    def mark_next_interval(self, missing: int) -> int:
        self.stretches.append(min(self.every, missing))
        return self.stretches[-1]

    def save_progress(self, progress: Progress) -> None:
        self.kept.append(replace(progress, weights=progress.weights.clone(), ran=progress.ran.copy()))


def test_a_run_that_diverges_leaves_and_the_others_end_as_if_alone() -> None:
    wild = DpSgd(lr=3e38, clip_norm=1e6)
    runs = [replace(RUN, trainer=trainer) for trainer in (GRIDS["DP-SGD"][0], wild, GRIDS["DP-SGD"][3])]
    notes = [Notes(every=4) for _ in runs]
    ours, outcomes = together(runs, own_streams(3), journals=notes)
    assert [outcome.diverged for outcome in outcomes] == [False, True, False]
    assert outcomes[1].steps < RUN.steps
    assert are_same_events(outcomes[1].event, replace(runs[1], steps=outcomes[1].steps).event)
    theirs, _ = alone(runs, own_streams(3))
    for row in (0, 2):
        assert torch.allclose(ours[row], theirs[row], rtol=1e-5, atol=1e-6)
        assert are_same_events(outcomes[row].event, runs[row].event)
        assert notes[row].stretches == [4, 2]
        assert [progress.step for progress in notes[row].kept] == [4]
    assert notes[1].stretches == [4]
    assert notes[1].kept == []


def test_a_stop_is_heard_by_all_after_the_same_step() -> None:
    asked = iter([False, True])
    notes = [Notes(every=100) for _ in range(3)]
    runs = [replace(RUN, trainer=trainer) for trainer in GRIDS["DP-NSGD"]]
    weights, outcomes = together(runs, own_streams(3), journals=notes, should_stop=lambda: next(asked))
    assert all(outcome.stopped and outcome.steps == 2 for outcome in outcomes)
    for row, note in zip(weights, notes, strict=True):
        assert torch.equal(note.kept[0].weights, row)


@each_grid
def test_together_goes_on_as_if_it_had_never_stopped(trainers) -> None:
    """Without noise and with everybody in every batch two sessions end where one does, also in other company.

    That is, up to the rounding of products in float32: the second session has everybody in another order.
    """
    runs = [
        replace(RUN, trainer=trainer, sampler=Poisson(batch_size=NOMINAL), noise_multiplier=0.0) for trainer in trainers
    ]
    whole, _ = together(runs, [reproducible_streams(1, "a fourth")] * len(runs))
    notes = [Notes(every=4) for _ in runs]
    together(runs, [reproducible_streams(1, "a fifth")] * len(runs), journals=notes)
    last = len(runs) - 1
    rest, outcomes = together(runs[last:], [reproducible_streams(1, "a sixth")], since=[notes[last].kept[0]])
    assert torch.allclose(rest[0], whole[last], rtol=1e-5, atol=1e-6)
    assert are_same_events(outcomes[0].event, runs[last].event)
    rest, _ = together(runs, [reproducible_streams(1, "a seventh")] * len(runs), since=[note.kept[0] for note in notes])
    assert all(torch.allclose(mine, other, rtol=1e-5, atol=1e-6) for mine, other in zip(rest, whole, strict=True))


@pytest.mark.parametrize(
    "other",
    [{"sampler": Poisson(batch_size=31)}, {"steps": 7}, {"schedule": Constant()}, {"train_records": 91}, {"ema": 0.9}],
    ids=lambda other: next(iter(other)),
)
def test_runs_that_are_not_alike_are_refused_before_anything_is_drawn(other) -> None:
    streams = own_streams(2)
    with pytest.raises(ValueError, match=f"^Expected {next(iter(other))} of runs that are trained together"):
        together([RUN, replace(RUN, **other)], streams)
    assert streams[0].subsampling.random() == own_streams(2)[0].subsampling.random()


def test_units_of_several_records_are_not_stacked() -> None:
    units = Units(names=(b"a", b"b"), of=np.array([0, 1, 1, 0]))
    with pytest.raises(ValueError, match=r"^Expected units of one record each"):
        StackedSums(stack=Stack.from_model(fresh(1)[0]), records=replace(records(4), units=units), device="cpu")


@pytest.mark.parametrize("batch_size", [6, 30], ids=["few", "many"])
@pytest.mark.parametrize("share", [False, True])
def test_how_many_are_in_work_at_a_time_changes_nothing(monkeypatch, share, batch_size) -> None:
    runs = [replace(RUN, trainer=trainer, sampler=Poisson(batch_size=batch_size)) for trainer in GRIDS["DP-SGD"]]
    whole, _ = together(runs, own_streams(4), share=share)
    for name in ("_FLOATS", "_OWN_FLOATS", "_GATHERED", "_LENGTH_CHUNK", "_HELD"):
        monkeypatch.setattr(f"dpsweep.trainers.training.gradient_sums.{name}", 7)
    monkeypatch.setattr("dpsweep.trainers.engines.stacked._CACHED", 7)
    parts, _ = together(runs, own_streams(4), share=share)
    for mine, other in zip(parts, whole, strict=True):
        assert torch.allclose(mine, other, rtol=1e-5, atol=1e-6)


@dataclass(frozen=True, kw_only=True, eq=False)
class Shapes(Stack):
    """The architecture, and the shape of the inputs of every pass."""

    seen: list[tuple[int, ...]] = field(default_factory=list)

    def add_bounded_gradient_sums(self, total, weights, examples, mask, transform) -> None:
        self.seen.append(tuple(examples.inputs.shape))
        super().add_bounded_gradient_sums(total, weights, examples, mask, transform)


@pytest.mark.parametrize("chunk", [None, 2], ids=["blocks", "chunks"])
def test_batches_above_their_places_take_as_many_times_the_places_and_have_the_same_sums(chunk) -> None:
    models, data, places = fresh(3), records(), 4
    stack = Shapes(layers=Stack.from_model(models[0]).layers, loss=CROSS_ENTROPY)
    sums = StackedSums(stack=stack, records=data, device="cpu", chunk=chunk)
    weights, transforms = torch.stack([flat(model) for model in models]), [Clip(clip_norm=0.1 * k) for k in (1, 2, 3)]
    units, sizes = np.r_[0:9, 20:22, 30:43], np.array([9, 2, 13])
    batch = Batch(units=units, sizes=sizes, common=False, places=places, most=NOMINAL)
    ours = sums.over([0, 1, 2], transforms)(weights, batch)
    assert stack.seen == [(3, chunk or places, *SHAPE)] * (16 // (chunk or places)), "16 places for 13 units"
    for row, own in enumerate(np.split(units, np.cumsum(sizes)[:-1])):
        one = replace(batch, units=own, sizes=sizes[row : row + 1], common=True)
        theirs = sums.over([row], transforms[row : row + 1])(weights[row : row + 1], one)
        assert torch.allclose(ours[row], theirs[0], rtol=1e-5, atol=1e-6)


def test_products_that_torch_may_shorten_are_refused() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ValueError, match=r"^Expected float32_matmul_precision=medium to be highest\.$"):
            together([RUN], own_streams(1))
    finally:
        torch.set_float32_matmul_precision("highest")
