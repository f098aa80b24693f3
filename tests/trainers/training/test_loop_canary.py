"""An attack on the real training loop: what one step gives away of a record that was made for it.

All records but the canary have gradients of zero, and the canary's is as long as it may be, so that one step on
neighbours is as far apart as the law allows. Thousands of fresh steps with and without the canary, a threshold fixed
beforehand and Clopper and Pearson's intervals give an epsilon that the step costs at least, with confidence
1 - FALSE_ALARM: never above what is charged for it. The counts of an attack are binomial with known probabilities, so
that their quantiles say what the attack gets at least, from a right program and from one with a planted mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom, norm
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.batch_sampling import FixedSize, Poisson
from dpsweep.trainers.declarations.losses import SquaredError
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.methods.method import Trainer
from dpsweep.trainers.methods.named_methods import DpAdam, DpNsgd, DpSgd
from dpsweep.trainers.methods.transforms import Clip, Normalize
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import Streams, reproducible_streams, secret_streams
from dpsweep.trainers.training.batch_and_noise import BatchAndNoise
from dpsweep.trainers.training.gradient_sums import EngineSums, StackedSums, Sums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run
from tests.margins import FALSE_ALARM, count_range, deviation_range, deviations, distribution_margin, joint

RECORDS, FEATURES = 12, 3
TIMES = 10_000
DELTA = 0.01
CANARY = torch.tensor([[300.0, 0.0, 400.0]])
TOWARDS = CANARY[0] / CANARY.norm()


def line() -> nn.Sequential:
    return nn.Sequential(nn.Linear(FEATURES, 1, bias=False))


def records(*, canary: bool) -> Records:
    silent = torch.zeros(RECORDS, FEATURES)
    features = torch.cat([silent, CANARY]) if canary else silent
    return Records(features=features, labels=torch.full((len(features),), -1e4))


def stacked(models: Sequence[nn.Module], data: Records) -> Sums:
    return StackedSums(stack=Stack.from_model(models[0], SquaredError()), records=data, device="cpu")


def fused(models: Sequence[nn.Module], data: Records) -> Sums:
    return EngineSums(models=models, engine=Fused(), records=data, device="cpu", chunk=None, loss=SquaredError())


@cache
def models_of(count: int) -> list[nn.Sequential]:
    """So many models, made once: what costs time is to make them."""
    return [build_model_with_seeded_weights(line, seed) for seed in range(count)]


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """What a mistake makes of a step: its noise and the canary's share of it, as multiples of what is declared."""

    noise: float = 1.0
    share: float = 0.9999  # less than 1, since a bound is kept in spite of rounding


RIGHT = Mistake()


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Many fresh runs of one step; `batch_size` of the nominal records take part on average."""

    trainer: Trainer
    batch_size: int = RECORDS
    noise_multiplier: float = 1.0
    threshold: float = 1.5
    times: int = TIMES
    sums: Callable[[Sequence[nn.Module], Records], Sums] = stacked
    streams: Callable[[int], Sequence[Streams]] = lambda times: [secret_streams()] * times

    @property
    def run(self) -> Run:
        return Run(
            trainer=self.trainer,
            sampler=Poisson(batch_size=self.batch_size),
            schedule=Constant(),
            noise_multiplier=self.noise_multiplier,
            steps=1,
            train_records=RECORDS,
        )

    @property
    def charged(self) -> float:
        return Pld().epsilon(self.run.event, DELTA, Adjacency.ADD_OR_REMOVE_ONE)

    def moves(self, *, canary: bool) -> Tensor:
        """By how much each run moved [times, features], in standard deviations of the noise that was declared."""
        models = models_of(self.times)
        for model in models:
            nn.init.zeros_(model[0].weight)
        data = records(canary=canary)
        sums, streams = self.sums(models, data), self.streams(self.times)
        train_together([self.run] * self.times, models, sums, data, streams, device="cpu")
        after = torch.stack([parameters_to_vector(model.parameters()).detach() for model in models])
        declared = self.noise_multiplier * self.trainer.transform.norm_bound / self.batch_size
        return -after / self.trainer.lr / declared

    def lower_bound(self) -> float:
        """An epsilon that the step costs at least, whatever is claimed; wrong with probability FALSE_ALARM."""
        sightings, alarms = (
            int((self.moves(canary=canary) @ TOWARDS > self.threshold).sum()) for canary in (True, False)
        )
        return self.proven(sightings, alarms)

    def proven(self, sightings: int, alarms: int) -> float:
        """The epsilon that these counts prove, by the intervals of Clopper and Pearson."""
        tail, times = FALSE_ALARM / 2, self.times
        seen = beta.ppf(tail, sightings, times - sightings + 1) if sightings else 0.0
        mistaken = beta.isf(tail, alarms + 1, times - alarms) if alarms < times else 1.0
        return float(np.log(max((seen - DELTA) / mistaken, 1e-9)))

    def least(self, mistake: Mistake = RIGHT) -> float:
        """What `lower_bound` falls short of with probability FALSE_ALARM, by the exact quantiles of both counts."""
        rate, tail = self.batch_size / RECORDS, FALSE_ALARM / 2
        alarm = norm.sf(self.threshold / mistake.noise)
        moved = norm.sf((self.threshold - mistake.share / self.noise_multiplier) / mistake.noise)
        sighting = rate * moved + (1 - rate) * alarm
        return self.proven(int(binom.ppf(tail, self.times, sighting)), int(binom.isf(tail, self.times, alarm)))


METHODS = [DpSgd(lr=0.7, clip_norm=4.0), DpSgd(lr=0.7, clip_norm=0.25), DpNsgd(lr=0.7, regularizer=0.01)]
each_method = pytest.mark.parametrize("trainer", METHODS, ids=str)


BY_ATTACK = "Clopper-Pearson for the law, binomial quantiles for the power; FALSE_ALARM each"
attacked = pytest.mark.randomized(
    draws="secret noise and batches of independent runs", bound=BY_ATTACK, false_alarm=2 * FALSE_ALARM
)


@attacked
@pytest.mark.parametrize(
    "trainer", [METHODS[0], *(pytest.param(one, marks=pytest.mark.long) for one in METHODS[1:])], ids=str
)
@pytest.mark.parametrize(
    ("batch_size", "times"),
    [(RECORDS, TIMES), pytest.param(RECORDS // 2, 2 * TIMES, marks=pytest.mark.long)],
)
def test_a_canary_gives_away_no_more_than_is_charged_and_nearly_as_much(
    trainer: Trainer, batch_size: int, times: int
) -> None:
    attack = Attack(trainer=trainer, batch_size=batch_size, times=times)
    assert attack.least() > 0.3 * attack.charged, "the attack is a strong one"
    assert attack.least() <= attack.lower_bound() <= attack.charged


@pytest.mark.long
@attacked
def test_a_canary_gives_away_no_more_to_another_engine() -> None:
    attack = Attack(trainer=METHODS[0], sums=fused, times=1500, noise_multiplier=0.5, threshold=2.0)
    assert attack.least() > 0.2 * attack.charged, "the attack is a strong one"
    assert attack.least() <= attack.lower_bound() <= attack.charged


@pytest.mark.randomized(
    draws="secret noise of independent runs",
    bound="exact normal, chi-square and binomial tails, Massart's inequality",
    false_alarm=6 * FALSE_ALARM,
)
@each_method
def test_noise_has_the_declared_law_in_every_coordinate_and_between_them_none(trainer: Trainer) -> None:
    moves = Attack(trainer=trainer).moves(canary=False).double().numpy()
    assert np.abs(moves.mean(axis=0)).max() < deviations(FEATURES) / np.sqrt(TIMES)
    low, high = deviation_range(TIMES, FEATURES)
    sizes = np.sqrt((moves**2).mean(axis=0))
    assert low < sizes.min() <= sizes.max() < high
    assert low > 0.95, "noise that is smaller by a twentieth is out of this range"
    assert max(abs(joint(moves[:, one], moves[:, other])) for one, other in PAIRS) < deviations(len(PAIRS))
    for first in (0, 1):
        earlier, later = moves[first:-1:2], moves[first + 1 :: 2]
        assert abs(joint(earlier[: len(later)], later)) < deviations(2), "of runs one after the other"
    levels = np.sort(moves, axis=None)
    ranks = np.arange(1, levels.size + 1) / levels.size
    half_a_cell = 2.0**-5 * norm.pdf(0)  # the lattice's cells are 2**-4 standard deviations at most
    assert np.abs(ranks - norm.cdf(levels)).max() < distribution_margin(levels.size) + half_a_cell + 1 / levels.size
    far_out = count_range(levels.size, 2 * norm.sf(3))
    assert far_out[0] <= (np.abs(levels) > 3).sum() <= far_out[1], "no tail is cut off"


PAIRS = [(one, other) for one in range(FEATURES) for other in range(one)]


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    request.param(monkeypatch)
    yield


def noise_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = BatchAndNoise.draw_standard_normal_noise
    monkeypatch.setattr(BatchAndNoise, "draw_standard_normal_noise", lambda self, like: drawn(self, like) / 2)


def noise_not_scaled_by_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = BatchAndNoise.draw_standard_normal_noise
    monkeypatch.setattr(
        BatchAndNoise,
        "draw_standard_normal_noise",
        lambda self, like: drawn(self, like) / self.run.trainer.transform.norm_bound,
    )


def noise_divided_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = BatchAndNoise.draw_standard_normal_noise
    monkeypatch.setattr(
        BatchAndNoise, "draw_standard_normal_noise", lambda self, like: drawn(self, like) / self.run.sampler.batch_size
    )


def nothing_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clip, "transformed_signed_lengths", lambda self, lengths: lengths)


def normalization_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Normalize, "transformed_signed_lengths", lambda self, lengths: lengths / self.regularizer)


UNBOUNDED = Mistake(share=1e4)


@pytest.mark.randomized(
    draws="secret noise of independent runs",
    bound="binomial quantiles: the mistake is missed with this probability",
    false_alarm=FALSE_ALARM,
)
@pytest.mark.parametrize(
    ("planted", "trainer", "mistake", "threshold", "times"),
    [
        pytest.param(noise_halved, METHODS[0], Mistake(noise=1 / 2), 1.3, TIMES, marks=pytest.mark.long),
        pytest.param(noise_halved, METHODS[2], Mistake(noise=1 / 2), 1.3, TIMES, marks=pytest.mark.long),
        (noise_not_scaled_by_the_bound, METHODS[0], Mistake(noise=1 / 4), 0.75, 2000),
        (noise_divided_twice, METHODS[0], Mistake(noise=1 / RECORDS), 0.5, 2000),
        (nothing_clipped, METHODS[0], UNBOUNDED, 4.0, 2000),
        (normalization_without_a_bound, METHODS[2], UNBOUNDED, 4.0, 2000),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
    indirect=["planted"],
)
@pytest.mark.usefixtures("planted")
def test_a_planted_mistake_gives_away_more_than_is_charged(
    trainer: Trainer, mistake: Mistake, threshold: float, times: int
) -> None:
    attack = Attack(trainer=trainer, threshold=threshold, times=times)
    assert attack.least(mistake) > attack.charged, "the mistake is found but with probability FALSE_ALARM"
    assert attack.lower_bound() > attack.charged


@dataclass(frozen=True)
class MeanFirst:
    """The mistake of clipping the batch's mean gradient, and not each example's."""

    stacks: ClassVar[bool] = False

    def bounded_gradient_sum_and_norms(
        self, model: nn.Module, batch: Minibatch, task: Task
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total, norms = Fused().bounded_gradient_sum_and_norms(
            model, batch, replace(task, transform=Clip(clip_norm=1e30))
        )
        mean = total / len(batch)
        return len(batch) * mean * task.transform.factors(mean.norm()[None]), norms


def mean_first(models: Sequence[nn.Module], data: Records) -> Sums:
    return EngineSums(models=models, engine=MeanFirst(), records=data, device="cpu", chunk=None, loss=SquaredError())


@pytest.mark.randomized(
    draws="secret noise of independent runs",
    bound="binomial quantiles: the mistake is missed with this probability",
    false_alarm=FALSE_ALARM,
)
def test_a_mean_before_clipping_gives_away_more_than_is_charged() -> None:
    """The canary's mean is clipped to the bound and taken for each of its batch."""
    attack = Attack(trainer=METHODS[0], sums=mean_first, times=500, threshold=7.0)
    assert attack.least(Mistake(share=RECORDS)) > attack.charged
    assert attack.lower_bound() > attack.charged


def test_one_seed_for_all_runs_shows() -> None:
    """One run's noise would be every run's: two runs together would give away the sum without any."""
    one, own = (
        Attack(trainer=METHODS[0], times=50, streams=streams).moves(canary=False).std(dim=0)
        for streams in (
            lambda times: [reproducible_streams(1, "all") for _ in range(times)],
            lambda times: [reproducible_streams(1, f"run {place}") for place in range(times)],
        )
    )
    assert float(one.max()) < 1e-3
    assert float(own.min()) > 0.3


def test_batches_of_fixed_size_show() -> None:
    """Poisson's sizes vary as they are charged for; a sampler that only says so is found by their variance."""
    rng, times = np.random.Generator(np.random.Philox(3)), 4000
    _, sizes = Poisson(batch_size=RECORDS // 2).draw_batch_indices(times, RECORDS, RECORDS, rng)
    expected = RECORDS / 4
    assert sizes.var() == pytest.approx(expected, rel=6 * np.sqrt(2 / times))
    _, fixed = FixedSize(batch_size=RECORDS // 2).draw_batch_indices(times, RECORDS, RECORDS, rng)
    assert fixed.var() != pytest.approx(expected, rel=6 * np.sqrt(2 / times))


@pytest.mark.long
@pytest.mark.randomized(
    draws="secret noise of independent runs", bound="Clopper-Pearson intervals", false_alarm=FALSE_ALARM
)
def test_post_processing_gives_nothing_more_away() -> None:
    """Adam's first step is the sign of the gradient, nearly: less than the gradient itself."""
    attack = Attack(trainer=DpAdam(lr=0.7, clip_norm=4.0))
    assert attack.lower_bound() <= attack.charged
