"""Correlated noise in the loop: its covariance, one matrix for each job, nothing of it on disk, one band as DP-SGD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpsweep.accounting.events.build import are_same_events, leaves_with_counts, repeat
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.split import units_of_each_cyclic_part
from dpsweep.trainers.declarations.batch_sampling import CyclicPoisson, Poisson
from dpsweep.trainers.declarations.clip_schedules import Linear
from dpsweep.trainers.declarations.correlated_noise import BandedSquareRoot
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.methods.method import Method
from dpsweep.trainers.methods.named_methods import DpSgd
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.methods.updates import Update
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import lattice_spacing, reproducible_streams
from dpsweep.trainers.training import checkpoint, loop
from dpsweep.trainers.training.batch_and_noise import Batch, NoiseRows
from dpsweep.trainers.training.run import Progress, Run
from tests.trainers.attempts import RUN as SMALL
from tests.trainers.attempts import Attempt, Killed, Spy
from tests.trainers.loops import RUN, each_trainer, some_records, trained

NUMBERS, STEPS = 40_000, 8
COEFFICIENTS = BandedSquareRoot(bands=3).coefficients_for_run(Constant(), STEPS)
NOISE = BandedSquareRoot(bands=3, coefficients=COEFFICIENTS)
RECORDS = Records(
    features=torch.arange(60.0)[:, None].repeat(1, NUMBERS // 2 - 1), labels=torch.zeros(60, dtype=torch.int64)
)
BANDED = Run(
    trainer=DpSgd(lr=1.0, clip_norm=0.3),
    sampler=CyclicPoisson(batch_size=10, parts=4),
    schedule=Constant(),
    noise_multiplier=0.7,
    steps=STEPS,
    train_records=60,
    noise=NOISE,
)
BOUND = 6 / np.sqrt(NUMBERS)
"""Six standard deviations of an empirical covariance of independent standard normal numbers."""


@dataclass
class Kept:
    """A journal with intervals of `every` steps; it keeps the last progress."""

    every: int
    last: Progress | None = None

    def mark_next_interval(self, missing: int) -> int:
        return min(self.every, missing)

    def save_progress(self, progress: Progress) -> None:
        self.last = replace(progress, weights=progress.weights.clone(), ran=progress.ran.copy())


def zero_sums(rows: Sequence[int], transforms: Sequence[Any]) -> Any:
    return lambda weights, batch, shrink=1.0: torch.zeros_like(weights, dtype=torch.float64)


def wide_model() -> nn.Module:
    return build_model_with_seeded_weights(lambda: logistic((NUMBERS // 2 - 1,), 2), 1)


def noise_of(run: Run, streams: Sequence[str], **options: Any) -> list[NDArray[np.float64]]:
    """The noise [T, P] in the sums of runs whose gradients are 0, in standard deviations of the independent draws."""
    seen: list[list[Tensor]] = [[] for _ in streams]

    def observe(rows: Sequence[int], step: int, means: Tensor) -> None:
        for row, mean in zip(rows, means, strict=True):
            seen[row].append(mean.double() * run.sampler.batch_size / run.noise_std)

    loop.train_together(
        *([run] * len(streams), [wide_model() for _ in streams]),
        *(SimpleNamespace(over=zero_sums), RECORDS, [reproducible_streams(1, name) for name in streams]),
        device="cpu",
        observe=observe,
        **options,
    )
    return [torch.stack(kept).numpy() for kept in seen]


def matrix(steps: int) -> NDArray[np.float64]:
    return sum(c * np.eye(steps, k=-lag) for lag, c in enumerate(COEFFICIENTS) if lag < steps)


def deviation_from_identity(whitened: NDArray[np.float64]) -> float:
    return float(np.abs(whitened @ whitened.T / whitened.shape[1] - np.eye(len(whitened))).max())


def test_the_noise_is_independent_draws_behind_the_matrix() -> None:
    (noise,) = noise_of(BANDED, ["one"])
    assert deviation_from_identity(matrix(STEPS) @ noise) < BOUND
    inverse = np.linalg.inv(matrix(STEPS))
    assert np.abs(noise @ noise.T / NUMBERS - inverse @ inverse.T).max() < 2 * BOUND * np.abs(inverse).max() ** 2
    assert deviation_from_identity(noise) > 0.3


def test_models_of_a_stack_have_rows_of_their_own() -> None:
    one, other = noise_of(BANDED, ["one", "other"])
    assert deviation_from_identity(np.concatenate([matrix(STEPS) @ one, matrix(STEPS) @ other])) < BOUND


def test_each_noisy_sum_is_on_the_lattice_of_its_independent_draw() -> None:
    (noise,) = noise_of(BANDED, ["one"])
    cells = noise * COEFFICIENTS[0] * BANDED.noise_std / lattice_spacing(BANDED.noise_std)
    assert np.abs(cells - np.round(cells)).max() < 0.02


@pytest.mark.parametrize("every", [4, STEPS])
def test_rows_go_on_from_one_interval_to_the_next(every: int) -> None:
    models, journal = [wide_model(), wide_model()], Kept(every=every)
    for model, options in zip(models, ({}, {"journals": [journal]}), strict=True):
        loop.train_together(
            *([BANDED], [model], SimpleNamespace(over=zero_sums), RECORDS, [reproducible_streams(1, "one")]),
            device="cpu",
            **options,
        )
    one, other = (nn.utils.parameters_to_vector(model.parameters()) for model in models)
    assert torch.equal(one, other)


def resumed_noise() -> NDArray[np.float64]:
    """The noise [T, P] of a run that was stopped after half its steps and went on."""
    model, journal, parts = wide_model(), Kept(every=4), []
    for streams in ("first", "second"):
        before = nn.utils.parameters_to_vector(model.parameters()).detach().double()
        weights = [before]
        loop.train_together(
            *([BANDED], [model], SimpleNamespace(over=zero_sums), RECORDS, [reproducible_streams(1, streams)]),
            device="cpu",
            journals=[journal],
            since=[journal.last],
            on_step=lambda step, weights=weights, model=model: weights.append(
                nn.utils.parameters_to_vector(model.parameters()).detach().double()
            ),
            should_stop=lambda: True,
        )
        parts += [one - two for one, two in pairwise(weights)]
    assert len(parts) == STEPS
    return torch.stack(parts).numpy() * BANDED.sampler.batch_size / BANDED.noise_std


def blocks() -> NDArray[np.float64]:
    half = matrix(STEPS // 2)
    return np.block([[half, np.zeros_like(half)], [np.zeros_like(half), half]])


def test_a_resumed_run_has_a_new_matrix_without_a_history() -> None:
    noise = resumed_noise()
    assert deviation_from_identity(blocks() @ noise) < BOUND
    assert deviation_from_identity(matrix(STEPS) @ noise) > 10 * BOUND


def test_a_history_that_is_restored_after_a_resume_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Tensor] = []
    begin, end = NoiseRows.__init__, NoiseRows.history_of_each_run

    def restore(self: NoiseRows, coefficients: Any, history: Any, first: int, steps: int) -> None:
        begin(self, coefficients, [kept], first, steps)

    def keep(self: NoiseRows) -> list[list[Tensor]]:
        kept[:] = end(self)[0]
        return [list(kept)]

    monkeypatch.setattr(NoiseRows, "__init__", restore)
    monkeypatch.setattr(NoiseRows, "history_of_each_run", keep)
    assert deviation_from_identity(blocks() @ resumed_noise()) > 10 * BOUND


def test_no_row_is_part_of_what_a_checkpoint_stores() -> None:
    journal = Kept(every=4)
    options = {"journals": [journal], "should_stop": lambda: True}
    loop.train_together(
        *([BANDED], [wide_model()], SimpleNamespace(over=zero_sums), RECORDS, [reproducible_streams(1, "one")]),
        device="cpu",
        **options,
    )
    assert journal.last is not None
    stored = checkpoint._checkpoint_bytes(journal.last)
    assert len(stored) < 1.2 * 4 * NUMBERS, "the weights alone, in float32"


def test_a_cycle_that_a_kill_cut_short_is_one_more_access_and_whole_ones_are_what_was_priced(tmp_path: Path) -> None:
    """6 steps in cycles of 2 with a checkpoint after each, and one resume: 4 cycles are priced, 4 are told."""
    run = replace(
        SMALL,
        sampler=CyclicPoisson(batch_size=5, parts=2),
        noise=BandedSquareRoot(bands=2, coefficients=(0.8, 0.4)),
    )
    attempt, spy = Attempt(place=tmp_path, run=run, priced=4), Spy()

    def dies(step: int) -> None:
        if step == 3:
            raise Killed

    with pytest.raises(Killed):
        attempt.session(0, spy, on_step=dies)
    assert attempt.spent == 4
    _, outcome = attempt.session(1, spy)
    assert spy.taken == 3 + 4
    assert attempt.spent == 8
    assert are_same_events(outcome.event, repeat(run.event_of_one_period, 4))
    assert not any("row" in path.name or "noise" in path.name for path in tmp_path.rglob("*"))


@each_trainer
def test_one_band_trains_as_independent_noise_to_the_last_bit(trainer) -> None:
    one = replace(RUN, trainer=trainer)
    banded = replace(
        one,
        sampler=CyclicPoisson(batch_size=one.sampler.batch_size, parts=1),
        noise=BandedSquareRoot(bands=1, coefficients=(1.0,)),
    )
    weights = [trained(run, some_records(80), reproducible_streams(1, "trial")) for run in (one, banded)]
    assert torch.equal(weights[0][0], weights[1][0])
    assert weights[0][1].event == weights[1][1].event
    assert one.event == banded.event


def test_the_update_is_told_the_std_of_the_row() -> None:
    told: list[float] = []

    class Spy(Update[None]):
        def start(self, weights: Tensor) -> None:
            return

        def direction(self, state: None, gradient: Tensor, noise_std: Tensor) -> tuple[None, Tensor]:
            told.append(float(noise_std) * run.sampler.batch_size / run.noise_std)
            return state, gradient

    run = replace(BANDED, trainer=Method(lr=0.1, transform=Clip(clip_norm=0.3), update=Spy()))
    loop.train_together(
        *([run], [wide_model()], SimpleNamespace(over=zero_sums), RECORDS, [reproducible_streams(1, "one")]),
        device="cpu",
    )
    assert told == pytest.approx(np.linalg.norm(np.linalg.inv(matrix(STEPS)), axis=1), rel=1e-6)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_each_step_draws_from_its_part_alone(adjacency: Adjacency) -> None:
    run, records, seen = replace(BANDED, adjacency=adjacency), RECORDS, []

    def sums(rows: Sequence[int], transforms: Sequence[Any]) -> Any:
        def keep(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            seen.append(batch.units)
            return torch.zeros_like(weights, dtype=torch.float64)

        return keep

    (outcome,) = loop.train_together(
        *([run], [wide_model()], SimpleNamespace(over=sums), records, [reproducible_streams(1, "one")]), device="cpu"
    )
    parts = units_of_each_cyclic_part(records, 4, adjacency)
    assert all(np.isin(units, parts[step % 4]).all() for step, units in enumerate(seen))
    assert sum(map(len, seen)) > 0
    assert are_same_events(outcome.event, run.event)
    assert [count for _, count in leaves_with_counts(outcome.event)] == [STEPS // 4]


def test_a_run_that_has_no_price_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected noise.bands=3 <= 1"):
        replace(BANDED, sampler=Poisson(batch_size=10))
    with pytest.raises(ValueError, match=r"Expected clip_schedule=constant"):
        replace(BANDED, bounds=Linear(least=0.5))
    with pytest.raises(ValueError, match=r"noise of runs that are trained together"):
        loop.train_together(
            *([BANDED, replace(BANDED, noise=None)], [wide_model(), wide_model()], SimpleNamespace(over=zero_sums)),
            *(RECORDS, [reproducible_streams(1, "one")] * 2),
            device="cpu",
        )
