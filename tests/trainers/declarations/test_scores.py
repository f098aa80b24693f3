"""Scores: what they cost, what they read, and whether their intervals cover."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dpsweep.accounting.events.build import are_same_events, gaussian
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.records import Records, Units
from dpsweep.trainers.data.split import Split
from dpsweep.trainers.declarations.estimates import accuracy_with_wilson_interval, noisy_accuracy
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY
from dpsweep.trainers.declarations.scores import (
    PrivateHoldout,
    PublicTest,
    count_right_and_wrong_units,
    quality_per_record,
)
from tests.trainers.metric_samples import NAMES, Coupled, Rounding, neighbours, tied

ADD = Adjacency.ADD_OR_REMOVE_ONE


def judged(right: int, wrong: int) -> tuple[nn.Module, Records]:
    """A model that tells the sign of its only feature, and records that it judges as asked."""
    model = nn.Sequential(nn.Linear(1, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.0], [1.0]]))
        model[0].bias.zero_()
    features = torch.tensor([[1.0], [-1.0]]).repeat((right + wrong + 1) // 2, 1)[: right + wrong]
    labels = (features[:, 0] > 0).long()
    labels[right:] = 1 - labels[right:]
    return model, Records(features=features, labels=labels)


def rng() -> np.random.Generator:
    return np.random.Generator(np.random.Philox(3))


EMPTY = judged(0, 0)[1]


def test_the_private_score_declares_its_noise() -> None:
    score = PrivateHoldout(fraction=0.2, noise_std=22.1)
    assert are_same_events(score.event(Adjacency.ADD_OR_REMOVE_ONE), gaussian(noise_multiplier=22.1))
    assert "20%" in score.statement
    assert "22.1" in score.statement
    assert PublicTest().event(Adjacency.REPLACE_ONE) is None
    assert "public" in PublicTest().statement


def test_noise_that_no_plan_has_chosen_is_refused() -> None:
    score = PrivateHoldout(fraction=0.2)
    model, records = judged(1, 1)
    split = Split(train=EMPTY, holdout=records)
    for use in (
        lambda: score.event(Adjacency.REPLACE_ONE),
        lambda: score.statement,
        lambda: score.measure(model, split, rng(), "cpu"),
    ):
        with pytest.raises(ValueError, match=r"^Expected noise_std=None to be a number"):
            use()


def test_nominal_training_sizes() -> None:
    assert PrivateHoldout(fraction=0.2).train_records(5000, ADD) == 4000
    assert PrivateHoldout(fraction=0.1).train_records(1797, ADD) == 1617
    assert PrivateHoldout(fraction=0.99).train_records(1, ADD) == 1
    assert PublicTest().train_records(5000, ADD) == 5000


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_where_records_are_replaced_the_number_left_is_exact(fraction: float) -> None:
    """A batch of fixed size is charged for so many records, and fewer would cost more."""
    score = PrivateHoldout(fraction=fraction)
    for count in (1, 2, 7, 1797):
        records = Records(features=torch.zeros(count, 1), labels=torch.zeros(count, dtype=torch.int64))
        left = len(score.split(records, None, Adjacency.REPLACE_ONE).train)
        assert score.train_records(count, Adjacency.REPLACE_ONE) == max(1, left)


def test_missing_records_are_refused() -> None:
    model, records = judged(1, 1)
    with pytest.raises(ValueError, match=r"split.holdout=None"):
        PrivateHoldout(fraction=0.2, noise_std=1).measure(model, Split(train=records), rng(), "cpu")
    for test in (None, EMPTY):
        with pytest.raises(ValueError, match=r"split.test=None"):
            PublicTest().measure(model, Split(train=records, test=test), rng(), "cpu")


def test_both_scores_read_their_own_records_only() -> None:
    model, holdout = judged(3000, 1000)
    _, test = judged(90, 10)
    split = Split(train=judged(0, 50)[1], holdout=holdout, test=test)
    private = PrivateHoldout(fraction=0.2, noise_std=1e-9).measure(model, split, rng(), "cpu")
    public = PublicTest().measure(model, split, rng(), "cpu")
    assert private.value == pytest.approx(0.75, abs=1e-9)
    assert public.value == 0.9
    assert public == accuracy_with_wilson_interval(90, 100)


def test_the_private_score_adds_the_declared_noise_to_both_counts() -> None:
    model, holdout = judged(700, 300)
    split, score = Split(train=EMPTY, holdout=holdout), PrivateHoldout(fraction=0.2, noise_std=10)
    drawn = rng()
    drawn.integers(64, size=1000)  # the places of the records in passes
    right, wrong = np.round((np.array([700, 300]) + drawn.standard_normal(2) * 10) * 2**6) / 2**6
    expected = noisy_accuracy(float(right), float(wrong), 10)
    assert score.measure(model, split, rng(), "cpu") == expected
    generator = rng()
    values = [score.measure(model, split, generator, "cpu").value for _ in range(2000)]
    std = 10 * math.sqrt(0.7**2 + 0.3**2) / 1000
    assert np.std(values) == pytest.approx(std, rel=0.1)
    assert np.mean(values) == pytest.approx(0.7, abs=6 * std / math.sqrt(2000) + 1e-3)


class Noted(nn.Module):
    """Predicts the first class, and notes the shapes that it is shown, and how many rows are blank."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()
        self.blank = self.rows = 0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if len(values) > 1:  # one row counts the outputs
            self.shapes.add(tuple(values.shape))
            self.rows += len(values)
            self.blank += int((values == 0).sum())
        return values.flatten(1)[:, :1] * torch.tensor([0.0, -1.0])


@pytest.mark.parametrize("count", [1, 63, 64, 65, 700])
@pytest.mark.parametrize("private", [True, False])
def test_passes_have_one_shape_and_blank_places_are_zeros(count: int, private: bool) -> None:
    """float32 kernels of another shape could change other records' predictions, and both counts with them."""
    features = torch.where(torch.arange(count) % 5 == 0, -1.0, 1.0)[:, None]
    records = Records(features=features, labels=torch.zeros(count, dtype=torch.int64))
    wrong, model = -(-count // 5), Noted()
    if private:
        counts = count_right_and_wrong_units(model, records, "cpu", rng())
        assert counts.tolist() == [count - wrong, wrong]
    else:
        assert quality_per_record(model, records, "cpu", CROSS_ENTROPY).sum() == count - wrong
    assert model.shapes == {(64, 1)}
    assert model.rows - model.blank == count


@pytest.mark.parametrize("name", ["accuracy", *NAMES])
@pytest.mark.parametrize("units", [0, 40])
@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
def test_an_added_unit_changes_no_prediction_of_another(name: str, units: int, first: bool) -> None:
    """The places of the others have the same law; with the same draws all of their predictions are the same."""
    score = PrivateHoldout(fraction=0.2, noise_std=1e-9, metric=name)
    for seed in range(20):
        before, after = (
            score.measure(Rounding(), Split(train=EMPTY, holdout=part), Coupled(seed, skip), "cpu").counts
            for part, skip in neighbours(tied(200, units), first=first)
        )
        change = np.subtract(after, before)
        assert change.sum() == pytest.approx(1, abs=1e-6)
        assert change.min() > -1e-6, "no other prediction has changed"


def of_units(*judgements: tuple[int, int]) -> tuple[nn.Module, Records]:
    """As many units as given, each with so many records judged rightly and wrongly."""
    model, records = judged(sum(right for right, _ in judgements), sum(wrong for _, wrong in judgements))
    rights, wrongs = zip(*judgements, strict=True)
    of = np.concatenate([np.repeat(np.arange(len(judgements)), counts) for counts in (rights, wrongs)])
    names = tuple(f"unit {place}".encode() for place in range(len(judgements)))
    return model, replace(records, units=Units(names=names, of=of))


def test_a_unit_counts_once_by_the_shares_of_its_records() -> None:
    model, records = of_units((3, 1), (0, 1000), (1, 0))
    assert count_right_and_wrong_units(model, records, "cpu", rng()).tolist() == [1.75, 1.25]
    score = PrivateHoldout(fraction=0.2, noise_std=1e-9)
    accuracy = score.measure(model, Split(train=EMPTY, holdout=records), rng(), "cpu")
    assert accuracy.value == pytest.approx(1.75 / 3)


@pytest.mark.parametrize("added", [(1, 0), (0, 1), (5, 3), (10_000, 0), (0, 10_000)])
def test_adding_one_unit_changes_the_two_counts_by_at_most_1(added) -> None:
    before = count_right_and_wrong_units(*of_units((3, 1), (0, 2)), "cpu", rng())
    after = count_right_and_wrong_units(*of_units((3, 1), (0, 2), added), "cpu", rng())
    assert np.linalg.norm(after - before) <= 1
    assert (after - before).sum() == 1


def test_a_public_test_set_is_counted_by_record() -> None:
    model, records = of_units((3, 1), (0, 4))
    assert PublicTest().measure(model, Split(train=EMPTY, test=records), rng(), "cpu") == accuracy_with_wilson_interval(
        3, 8
    )


def test_a_measurement_leaves_the_model_and_the_global_generator_alone() -> None:
    model, records = judged(700, 300)
    model.train()
    state = torch.get_rng_state()
    PublicTest().measure(model, Split(train=EMPTY, test=records), rng(), "cpu")
    assert model.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())


class _Failing(nn.Module):
    """A model that fails on records, beside a frozen part that is always in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.free = nn.Dropout().eval(), nn.Linear(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no pass")


def test_after_an_error_each_module_has_its_own_mode_again() -> None:
    model = _Failing()
    with pytest.raises(RuntimeError, match="no pass"):
        quality_per_record(model, judged(1, 1)[1], "cpu", CROSS_ENTROPY)
    assert [model.training, model.free.training, model.frozen.training] == [True, True, False]
    whole = nn.Sequential(nn.Dropout().eval(), judged(1, 1)[0])
    quality_per_record(whole, judged(1, 1)[1], "cpu", CROSS_ENTROPY)
    assert [whole.training, whole[0].training, whole[1].training] == [True, False, True]


def test_a_model_that_predicts_nan_still_has_a_score() -> None:
    model, records = judged(7, 3)
    with torch.no_grad():
        model[0].weight.fill_(math.nan)
    score = PublicTest().measure(model, Split(train=EMPTY, test=records), rng(), "cpu")
    assert 0 <= score.low <= score.value <= score.high <= 1


def test_an_empty_holdout_yields_noise_and_no_error() -> None:
    model, _ = judged(1, 1)
    score = PrivateHoldout(fraction=0.2, noise_std=5)
    accuracy = score.measure(model, Split(train=EMPTY, holdout=EMPTY), rng(), "cpu")
    assert (accuracy.low, accuracy.high) == (0, 1)
    assert 0 <= accuracy.value <= 1


@pytest.mark.parametrize("noise_std", [0.1, 4.0, 22.1])
@pytest.mark.parametrize(("records", "accuracy"), [(1000, 0.9), (1000, 0.5), (100, 0.1), (300, 1.0), (30, 0.7)])
def test_the_private_interval_covers(records, accuracy, noise_std) -> None:
    generator = rng()
    right = generator.binomial(records, accuracy, size=4000)
    noise = generator.standard_normal((4000, 2)) * noise_std
    scores = [noisy_accuracy(r + a, records - r + b, noise_std) for r, (a, b) in zip(right, noise, strict=True)]
    covered = np.mean([score.low <= accuracy <= score.high for score in scores])
    assert covered > 0.935
    assert all(0 <= score.low <= score.value <= score.high <= 1 for score in scores)


@pytest.mark.parametrize("noise_std", [0.1, 4.0, 22.1])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 9), (5, 5)])
def test_the_private_interval_covers_the_mean_of_units(sizes, noise_std) -> None:
    """Units of different sizes and difficulty: what is estimated is the mean of their own accuracies."""
    generator, units, times = rng(), 300, 4000
    records = generator.integers(sizes[0], sizes[1] + 1, size=(times, units))
    difficulty = generator.beta(4, 1, size=(times, units))
    right = (generator.binomial(records, difficulty) / records).sum(axis=1)
    noise = generator.standard_normal((times, 2)) * noise_std
    scores = [noisy_accuracy(r + a, units - r + b, noise_std) for r, (a, b) in zip(right, noise, strict=True)]
    assert np.mean([score.low <= 4 / 5 <= score.high for score in scores]) > 0.935


@pytest.mark.parametrize(("records", "accuracy"), [(1000, 0.9), (1000, 0.5), (10000, 0.99)])
def test_the_public_interval_covers_and_is_no_wider_than_needed(records, accuracy) -> None:
    right = rng().binomial(records, accuracy, size=4000)
    scores = [accuracy_with_wilson_interval(int(r), records) for r in right]
    assert 0.93 < np.mean([score.low <= accuracy <= score.high for score in scores]) < 0.97


def test_wilson_at_the_edges_and_against_a_known_value() -> None:
    none, every = accuracy_with_wilson_interval(0, 10), accuracy_with_wilson_interval(10, 10)
    assert (none.value, none.low, none.high) == (0.0, 0.0, pytest.approx(0.27753, abs=1e-5))
    assert (every.value, every.low, every.high) == (1.0, pytest.approx(0.72247, abs=1e-5), 1.0)
    assert (accuracy_with_wilson_interval(5, 10).low, accuracy_with_wilson_interval(5, 10).high) == pytest.approx(
        (0.23659, 0.76341), abs=1e-5
    )


@pytest.mark.parametrize(("right", "wrong"), [(-5.0, -5.0), (0.0, 0.0), (-30.0, 3.0), (3.0, -3.0), (1e4, -8.0)])
def test_noisy_counts_outside_their_range_are_clamped(right, wrong) -> None:
    score = noisy_accuracy(right, wrong, 10.0)
    assert 0 <= score.low <= score.value <= score.high <= 1


def test_more_noise_never_narrows_the_interval() -> None:
    widths = [(score := noisy_accuracy(800, 200, std)).high - score.low for std in (0.0, 1, 10, 30, 100, 1000)]
    assert widths == sorted(widths)
