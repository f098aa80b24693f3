"""Canaries: gradients that the transform bounds, records unlike all others, and an attacker who only looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.noise_law import ReleasedNoise, TensorLayout
from dpsweep.trainers.auditing.canaries import (
    RecordCanaries,
    layout_of_trainable_tensors,
    replace_stored_features_by_model_inputs,
    train_and_score_gradient_canaries,
    train_together_with_observers,
)
from dpsweep.trainers.data.records import IGNORED, Records, Scaling, Units
from dpsweep.trainers.declarations.batch_sampling import FixedSize, Poisson, RandomAllocation, Sampler
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss, SquaredError
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.methods.method import Trainer
from dpsweep.trainers.methods.named_methods import Adadp, DpAdam, DpNsgd, DpSgd
from dpsweep.trainers.methods.transforms import Clip, GradientTransform
from dpsweep.trainers.methods.updates import Sgd, Update
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training.gradient_sums import EngineSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
RECORDS, STEPS = 60, 20


@dataclass(frozen=True, kw_only=True)
class OfOnesOwn(Trainer):
    """A user's method, whose transform and update are properties."""

    lr: float = 0.5
    label = "of one's own"

    @property
    def transform(self) -> GradientTransform:
        return Clip(clip_norm=0.3)

    @property
    def update(self) -> Update[None]:
        return Sgd()


TRAINERS = [DpSgd(lr=0.5, clip_norm=0.3), DpNsgd(lr=0.5, regularizer=0.1), DpAdam(lr=0.1, clip_norm=2.0)]


def noise_of(numbers: int) -> ReleasedNoise:
    return ReleasedNoise(layout=TensorLayout(names=("numbers",), sizes=(numbers,)))


def run_of(trainer: Trainer, sampler: Sampler, noise: float = 1e-4) -> Run:
    return Run(
        trainer=trainer,
        sampler=sampler,
        schedule=Constant(),
        noise_multiplier=noise,
        steps=STEPS,
        train_records=RECORDS,
    )


@pytest.mark.parametrize("trainer", [*TRAINERS, Adadp(lr=0.1, clip_norm=1.0)], ids=str)
@pytest.mark.parametrize("sampler", [Poisson(batch_size=60), RandomAllocation(batch_size=60)], ids=str)
def test_a_canary_moves_its_coordinate_by_the_bound_at_every_step_that_has_it(
    trainer: Trainer, sampler: Sampler
) -> None:
    coins = np.arange(40) % 3 == 0
    (seen,) = train_and_score_gradient_canaries(
        [run_of(trainer, sampler)], coins, ADD, [reproducible_streams(1, "run")], noise_of(len(coins))
    )
    hits = seen.total * 1e-4
    assert hits[coins] == pytest.approx(STEPS, rel=2e-3)
    assert hits[~coins] == pytest.approx(0, abs=0.02)
    assert hits[coins].max() <= STEPS + 0.02, "never more than the bound"
    assert seen.off_lattice == 0


def test_where_one_is_replaced_the_other_record_has_the_opposite_gradient() -> None:
    coins = np.arange(40) % 2 == 0
    run = run_of(TRAINERS[0], FixedSize(batch_size=30))
    (seen,) = train_and_score_gradient_canaries([run], coins, REPLACE, [reproducible_streams(1, "run")], noise_of(40))
    hits = np.rint(seen.total * 1e-4)
    assert hits[coins].min() > 0 > hits[~coins].max()
    assert np.abs(hits).mean() == pytest.approx(STEPS / 2, abs=2)
    with pytest.raises(ValueError, match="the records that one may replace"):
        many = np.ones(RECORDS + 1, dtype=bool)
        train_and_score_gradient_canaries([run], many, REPLACE, [reproducible_streams(1, "run")], noise_of(100))
    with pytest.raises(ValueError, match="the numbers that are trained"):
        train_and_score_gradient_canaries([run], coins, REPLACE, [reproducible_streams(1, "run")], noise_of(39))


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_canaries_lie_in_every_tensor_and_the_sums_are_subtracted_from_the_noise(adjacency: Adjacency) -> None:
    layout = TensorLayout(names=("weight", "bias", "scale"), sizes=(300, 10, 1))
    assert layout_of_trainable_tensors(build_model_with_seeded_weights(lambda: logistic((1, 6, 6), 4), 1)).sizes == (
        4 * 36,
        4,
    )
    places = layout.spaced_places(50)
    assert [
        int(((start <= places) & (places < start + size)).sum())
        for start, size in zip((0, 300, 310), layout.sizes, strict=True)
    ] == [39, 10, 1]
    noise, coins = ReleasedNoise(layout=layout), np.arange(50) % 2 == 0
    run = run_of(TRAINERS[0], FixedSize(batch_size=30) if adjacency is REPLACE else Poisson(batch_size=30), noise=0.5)
    (seen,) = train_and_score_gradient_canaries([run], coins, adjacency, [reproducible_streams(1, "run")], noise)
    assert (noise.counts == STEPS).all()
    assert seen.total[coins].mean() > 10, "sums of 2 standard deviations at each of about 10 steps"
    assert np.sqrt(noise.squares.sum() / noise.counts.sum()) == pytest.approx(1, abs=0.03)
    assert all(finding.p_value > 1e-6 for finding in noise.findings(0.01))


def test_noise_beside_much_larger_sums_is_not_compared() -> None:
    coins, noise = np.ones(40, dtype=bool), noise_of(60)
    run = run_of(TRAINERS[0], Poisson(batch_size=60))
    train_and_score_gradient_canaries([run], coins, ADD, [reproducible_streams(1, "run")], noise)
    assert sorted(noise.counts.tolist()) == [0] * 40 + [STEPS] * 20, "float32 rounds the sums' numbers"
    assert all(finding.p_value > 1e-6 for finding in noise.findings(0.01))


def test_all_noisy_numbers_are_on_the_lattice_of_their_noise() -> None:
    run = run_of(TRAINERS[2], Poisson(batch_size=7), noise=3.0)
    coins, noise = np.arange(50) % 2 == 0, noise_of(60)
    (seen,) = train_and_score_gradient_canaries([run], coins, ADD, [reproducible_streams(1, "run")], noise)
    assert (seen.numbers, seen.off_lattice) == (60 * STEPS, 0), "of canaries or not"
    assert seen.variation.mean() == pytest.approx(1, abs=0.1)
    assert (noise.counts == STEPS).all()


def images(count: int = RECORDS) -> Records:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (count, 1, 6, 6), dtype=torch.uint8, generator=generator)
    return Records(features=pixels, labels=torch.arange(count) % 4, scaling=Scaling(scale=255.0))


def canaries_of(records: Records, count: int = 9, classes: int = 4, words: int | None = None) -> RecordCanaries:
    return RecordCanaries.draw_for_records(records, count, classes, words, np.random.Generator(np.random.Philox(2)))


@pytest.mark.parametrize("trainer", [*TRAINERS, OfOnesOwn()], ids=str)
def test_an_attacker_who_looks_changes_nothing(trainer: Trainer) -> None:
    run, records = run_of(trainer, Poisson(batch_size=20), noise=1.0), images()

    def trained(*, observed: bool) -> tuple[Tensor, list[Tensor]]:
        model, seen = build_model_with_seeded_weights(lambda: logistic((1, 6, 6), 4), 1), []
        sums = EngineSums(models=[model], engine=Fused(), records=records, device="cpu", chunk=None)
        streams = [reproducible_streams(1, "run")]
        if observed:
            see = [lambda weights, gradient, noise_std: seen.append(weights)]
            train_together_with_observers([run], [model], sums, records, streams, see, device="cpu")
        else:
            train_together([run], [model], sums, records, streams, device="cpu")
        return parameters_to_vector(model.parameters()).detach(), seen

    alone, (watched, weights) = trained(observed=False)[0], trained(observed=True)
    assert torch.equal(alone, watched)
    assert len(weights) == STEPS
    assert not torch.equal(weights[0], weights[-1])


def test_alignments_are_the_inner_products_with_the_gradients() -> None:
    records = replace_stored_features_by_model_inputs(images())
    canaries, model = canaries_of(records), build_model_with_seeded_weights(lambda: logistic((1, 6, 6), 4), 1)
    weights = parameters_to_vector(model.parameters()).detach()
    direction = torch.randn(len(weights), generator=torch.Generator().manual_seed(3))
    found = canaries.inner_products_of_direction_and_gradients(model, weights, direction, CROSS_ENTROPY, "cpu")
    for place, alignment in enumerate(found.tolist()):
        model.zero_grad()
        inputs, label = canaries.records.features[[place]], canaries.records.labels[[place]]
        CROSS_ENTROPY(model(inputs), label).backward()
        gradient = parameters_to_vector([parameter.grad for parameter in model.parameters()])
        assert alignment == pytest.approx(float(gradient @ direction), rel=1e-4, abs=1e-4)
    whole = CROSS_ENTROPY(model(canaries.records.features), canaries.records.labels)
    assert canaries.loss_of_each_canary(model, CROSS_ENTROPY, "cpu").sum() == pytest.approx(float(whole.detach()))


@pytest.mark.parametrize(
    ("labels", "classes", "loss"),
    [(torch.arange(RECORDS) % 4, 4, CROSS_ENTROPY), (torch.linspace(0, 1, RECORDS), 1, SquaredError())],
    ids=["classes", "numbers"],
)
def test_canaries_overlap_little_and_have_labels_that_nobody_predicts(labels: Tensor, classes: int, loss: Loss) -> None:
    records = replace_stored_features_by_model_inputs(
        Records(features=images().features, labels=labels, scaling=Scaling(scale=255.0))
    )
    canaries = canaries_of(records, classes=classes)
    rows = canaries.records.features.flatten(1)
    products = rows @ rows.t()
    assert torch.count_nonzero(products - products.diag().diag()) == 0, "disjoint inputs"
    assert float(rows.norm(dim=1).min()) > 3 * float(records.features.flatten(1).norm(dim=1).mean())
    assert canaries.records.labels.dtype == labels.dtype
    assert (canaries.records.labels.unique() if classes > 1 else canaries.records.labels > 2).numel() > 1


def test_tokens_stay_tokens() -> None:
    tokens = torch.randint(0, 50, (RECORDS, 8), generator=torch.Generator().manual_seed(1)).float()
    following = torch.full((RECORDS, 8), IGNORED)
    canaries = canaries_of(
        replace_stored_features_by_model_inputs(Records(features=tokens, labels=following)), words=50
    ).records
    assert canaries.features.dtype == torch.float32
    assert 0 <= canaries.features.min() <= canaries.features.max() < 50
    assert torch.equal(canaries.labels[:, :-1], canaries.features[:, 1:].long())
    assert (canaries.labels[:, -1] == IGNORED).all()


@pytest.mark.parametrize("coins", [[True, False, True], [False] * 3, [True] * 3])
def test_the_coins_decide_which_canaries_are_there(coins: Sequence[bool]) -> None:
    records, present = replace_stored_features_by_model_inputs(images(6)), np.array(coins)
    canaries = canaries_of(records, count=3)
    added = canaries.insert_present_canaries_into_records(records, present, ADD)
    assert len(added) == 6 + sum(coins)
    assert torch.equal(added.features[:6], records.features)
    assert torch.equal(added.features[6:], canaries.records.features[torch.tensor(coins)])
    replaced = canaries.insert_present_canaries_into_records(records, present, REPLACE)
    assert len(replaced) == 6
    for place in range(6):
        there = place < 3 and coins[place]
        expected = canaries.records.features[place] if there else records.features[place]
        assert torch.equal(replaced.features[place], expected)
    units = Units(names=(b"a", b"b"), of=np.array([0, 0, 0, 1, 1, 1]))
    grouped = canaries.insert_present_canaries_into_records(
        Records(features=records.features, labels=records.labels, units=units), present, ADD
    )
    assert grouped.number_of_units == 2 + sum(coins)
    with pytest.raises(ValueError, match="the records"):
        canaries.insert_present_canaries_into_records(records.select(slice(0, 2)), present, REPLACE)


def test_a_model_is_not_changed_by_the_attack() -> None:
    records = replace_stored_features_by_model_inputs(images())
    canaries, model = canaries_of(records), nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Tanh(), nn.Linear(5, 4))
    before = parameters_to_vector(model.parameters()).detach().clone()
    other = torch.zeros_like(before)
    canaries.inner_products_of_direction_and_gradients(model, other, other, CROSS_ENTROPY, "cpu")
    canaries.loss_of_each_canary(model, CROSS_ENTROPY, "cpu")
    assert torch.equal(parameters_to_vector(model.parameters()), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_canaries_of_several_labels_have_as_many() -> None:
    generator = np.random.default_rng(5)
    records = Records(
        features=torch.from_numpy(generator.random((20, 6), dtype=np.float32)),
        labels=torch.from_numpy(generator.integers(0, 2, (20, 3)).astype(np.float32)),
    )
    canaries = RecordCanaries.draw_for_records(records, 8, 3, None, generator)
    assert canaries.records.labels.shape == (8, 3)
    assert set(canaries.records.labels.unique().tolist()) == {0.0, 1.0}
    present = canaries.insert_present_canaries_into_records(records, np.arange(8) < 5, Adjacency.ADD_OR_REMOVE_ONE)
    assert len(present) == 25
