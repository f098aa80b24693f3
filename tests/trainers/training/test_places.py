"""Nobody is displaced: a record's bounded gradient has the same bits whoever else is in the step, at its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from dpsweep.accounting.events.build import NEVER
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.places import draw_places, most_joining, most_units, number_of_places
from dpsweep.trainers.data.records import Records, Scaling, Units
from dpsweep.trainers.declarations.augmentation import ShiftFlip
from dpsweep.trainers.declarations.batch_sampling import (
    CyclicPoisson,
    FixedSize,
    Poisson,
    Sampler,
    Shuffle,
    number_of_parts,
)
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss, SquaredError
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Engine, Minibatch, Task
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.engines.vmap import Vmap
from dpsweep.trainers.methods.named_methods import DpSgd
from dpsweep.trainers.methods.transforms import Clip, GradientTransform, Normalize
from dpsweep.trainers.models.convolutional import cnn
from dpsweep.trainers.models.fully_connected import linear, logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training.batch_and_noise import Batch, BatchAndNoise
from dpsweep.trainers.training.gradient_sums import EngineSums, StackedSums, Sums
from dpsweep.trainers.training.run import Run

CLASSES = 3


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A model on inputs of this shape, with weights times `scale`; one with squared errors has residuals near 0."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    scale: float = 1.0
    loss: Loss = CROSS_ENTROPY
    words: int | None = None
    nonzero: int | None = None

    def model(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        model = build_model_with_seeded_weights(self.make, 3).to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(self.scale)
        return model

    def records(self, count: int, units: Units | None = None) -> Records:
        generator = torch.Generator().manual_seed(count)
        features = torch.rand(count, *self.shape, generator=generator)
        if self.words is not None:
            features = (features * self.words).floor()
        if self.nonzero is not None:
            features = (features * 255 * (torch.rand(count, *self.shape, generator=generator) < 0.1)).to(torch.uint8)
        labels = torch.arange(count) % CLASSES
        scaling = Scaling() if self.nonzero is None else Scaling(scale=10.0)
        records = Records(features=features, labels=labels, units=units, scaling=scaling, nonzero=self.nonzero)
        if isinstance(self.loss, SquaredError):
            with torch.no_grad():
                outputs = self.model(torch.float64)(records.inputs(slice(None), "cpu").double())
                records = replace(records, labels=outputs.flatten().float())
        return records


def gelu() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(30, 9), nn.GELU(), nn.Linear(9, CLASSES))


def words() -> nn.Module:
    return nn.Sequential(Whole(), nn.Embedding(11, 6, padding_idx=0), nn.Flatten(), nn.Linear(42, CLASSES))


class Whole(nn.Module):
    """Token numbers as integers."""

    def forward(self, values: Tensor) -> Tensor:
        return values.long()


LINES = {
    f"{inputs} inputs, weights {scale:g}": Problem(
        make=lambda inputs=inputs: linear((inputs,), 1),
        shape=(inputs,),
        scale=scale * math.sqrt(inputs),  # so that this is the largest weight
        loss=SquaredError(),
    )
    for inputs in (50, 784)
    for scale in (1, 10, 100)
}
CHAINS = {
    "one output": LINES["784 inputs, weights 100"],
    "logistic": Problem(make=lambda: logistic((30,), CLASSES), shape=(30,)),
    "gelu": Problem(make=gelu, shape=(30,), scale=10),
}
SPARSE = {"mails": Problem(make=lambda: logistic((105,), CLASSES), shape=(105,), nonzero=10)}
OTHERS = {
    "cnn": Problem(make=lambda: cnn((1, 16, 16), CLASSES), shape=(1, 16, 16), scale=10),
    "words": Problem(make=words, shape=(7,), words=11),
}
ENGINES: dict[str, Engine] = {
    "fused": Fused(),
    "opacus": Opacus(),
    "vmap": Vmap(),
    "bfloat16": Fused(precision="bfloat16"),
}
PLACES = 27
each_engine = pytest.mark.parametrize("engine", ENGINES)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def spoiled(inputs: Tensor, own: Sequence[int], value: float) -> Tensor:
    """The inputs with other values in all other rows, which are in another order too; `value` in one of them."""
    changed = inputs.flip(0)
    changed[[*own]] = inputs[[*own]]
    other = next(row for row in range(len(inputs)) if row not in own)
    changed[other] = value
    return changed


@each_dtype
@each_engine
@pytest.mark.parametrize("name", [*CHAINS, *OTHERS])
def test_exchanging_all_other_rows_leaves_a_rows_bits(engine: str, name: str, dtype: torch.dtype) -> None:
    problem = (CHAINS | OTHERS)[name]
    if engine == "opacus" and problem.words:
        pytest.skip("has no rule for tables with padding")
    model, data = problem.model(dtype), problem.records(PLACES)
    inputs, targets = data.inputs(slice(None), "cpu").to(dtype), data.targets(slice(None), "cpu")
    targets = targets.to(dtype) if targets.is_floating_point() else targets
    task = Task(transform=Clip(clip_norm=1e-3), loss=problem.loss, chunk=14)
    for place in (0, 7, 13, 14, 26):
        weights = torch.zeros(PLACES)
        weights[place] = 1
        found = []
        for values in (inputs, spoiled(inputs, [place], 0.0 if problem.words else math.inf)):
            batch = Minibatch(values, targets, weights)
            total, norms = ENGINES[engine].bounded_gradient_sum_and_norms(model, batch, task)
            found.append((total, norms[place]))
        assert torch.equal(*(total for total, _ in found))
        assert torch.equal(*(norm for _, norm in found))


@each_dtype
@pytest.mark.parametrize("engine", ["opacus", "vmap"])
@pytest.mark.parametrize("name", ["gelu", "cnn"])
def test_exchanging_all_other_units_leaves_a_units_bits(engine: str, name: str, dtype: torch.dtype) -> None:
    """The others have other numbers of examples, too."""
    problem, slots, places = (CHAINS | OTHERS)[name], 5, 9
    data = problem.records(slots * places)
    inputs, targets = data.inputs(slice(None), "cpu").to(dtype), data.targets(slice(None), "cpu")
    model, task = problem.model(dtype), Task(transform=Clip(clip_norm=1e-3), chunk=6)
    for place in (0, 4, 8):
        filled = torch.rand(slots, places, generator=torch.Generator().manual_seed(1)) < 0.5
        filled[:3, place] = True
        others = ~filled
        others[:, place] = filled[:, place]
        weights, own = torch.zeros(places), [place + slot * places for slot in range(slots)]
        weights[place] = 1
        sums = [
            ENGINES[engine].bounded_gradient_sum_and_norms(model, Minibatch(values, targets, weights, used), task)[0]
            for values, used in ((inputs, filled), (spoiled(inputs, own, math.nan), others))
        ]
        assert torch.equal(*sums)


PATHS = ("common", "own", "masked")


def all_sums(path: str, problem: Problem, data: Records, dtype: torch.dtype = torch.float32) -> tuple[Sums, Tensor]:
    """The sums of three models along a path of the training loop, and their weights."""
    models = [problem.model(dtype) for _ in range(3)]
    weights = torch.stack([parameters_to_vector(model.parameters()).detach() for model in models])
    weights[2] *= 0.5
    if path in ENGINES:
        return EngineSums(
            models=models, engine=ENGINES[path], records=data, device="cpu", chunk=None, loss=problem.loss
        ), weights
    return StackedSums(stack=Stack.from_model(models[0], problem.loss), records=data, device="cpu"), weights


def sums_over(
    sums: Sums, weights: Tensor, path: str, units: np.ndarray, places: int, most: int, transform: GradientTransform
) -> Tensor:
    """The sums of batches of these units, with places that the same generator draws each time."""
    common, runs = path == "common", len(weights)
    order = np.random.default_rng(7)
    batch = Batch(
        units=units if common else np.tile(units, runs),
        sizes=np.full(runs, len(units)),
        common=common,
        places=places,
        most=most if path == "masked" else 10**9,
        order=order,
    )
    return sums.over(range(runs), [transform] * runs)(weights, batch)


def moved(path: str, problem: Problem, size: int, transform: GradientTransform) -> float:
    """How far the sums move when the last record joins, which takes a place that was blank."""
    data, places = problem.records(size + 20), size + 15
    sums, weights = all_sums(path, problem, data)
    units = np.arange(size)
    without, with_it = (
        sums_over(sums, weights, path, chosen, places, most_units(size + 20), transform)
        for chosen in (units, np.append(units, size + 19))
    )
    return float((with_it - without).norm(dim=1).max())


TRANSFORMS = (Clip(clip_norm=0.1), Clip(clip_norm=1e-3), Normalize(regularizer=0.01))


@pytest.mark.parametrize("transform", TRANSFORMS[1:], ids=repr)
@pytest.mark.parametrize("name", [*LINES][2:])
@pytest.mark.parametrize("path", [*PATHS, "fused"])
def test_one_more_record_moves_no_sum_by_more_than_the_bound(path: str, name: str, transform) -> None:
    """All residuals are near 0, so that a gradient turns round if its record is rounded otherwise."""
    for size in (1, 3, 63, 64):
        assert 0 < moved(path, LINES[name], size, transform) <= transform.norm_bound


@pytest.mark.long
@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("path", [*PATHS, *ENGINES])
def test_one_more_record_moves_no_sum_by_more_than_the_bound_for_any_size(path: str, name: str, transform) -> None:
    for size in (*range(1, 70), 127, 128, 129, 200, 300):
        for scale in (0.1, LINES[name].scale, 3e4):
            assert moved(path, replace(LINES[name], scale=scale), size, transform) <= transform.norm_bound


@pytest.mark.parametrize("path", [*PATHS, *ENGINES])
@pytest.mark.parametrize("name", ["gelu", "mails", "cnn", "words"])
def test_one_more_record_moves_no_sum_of_other_models_by_more_than_the_bound(path: str, name: str) -> None:
    problem = (CHAINS | SPARSE | OTHERS)[name]
    if (path not in ENGINES and name in OTHERS) or (path == "opacus" and problem.words):
        pytest.skip("another path takes this model")
    assert 0 < moved(path, problem, 40, Clip(clip_norm=0.1)) <= 0.1


@pytest.mark.parametrize(
    ("path", "dtype"),
    [*((path, dtype) for path in PATHS for dtype in (torch.float32, torch.float64)), ("fused", torch.float32)],
)
@pytest.mark.parametrize("name", [*CHAINS, *SPARSE])
def test_steps_without_a_record_are_the_same_bit_for_bit(path: str, name: str, dtype: torch.dtype) -> None:
    """Also where all records keep their places for many steps, and where the record has no finite gradient."""
    problem = (CHAINS | SPARSE)[name]
    more, units = problem.records(60), np.arange(50)
    features = more.features.clone()
    features[59] = 255 if problem.nonzero else math.nan
    spoilt, fewer = replace(more, features=features), more.select(np.arange(59))
    totals = [
        sums_over(*all_sums(path, problem, data, dtype), path, units, 64, most_units(60), Clip(clip_norm=1e-3))
        for data in (fewer, more, spoilt)
    ]
    assert totals[0].any()
    assert torch.equal(totals[0], totals[1])
    assert torch.equal(totals[0], totals[2])


@pytest.mark.parametrize("path", [*PATHS, *ENGINES])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_record_that_is_not_finite_changes_no_bit(path: str, poison: float) -> None:
    problem, units = CHAINS["gelu"], np.arange(50)
    data = problem.records(60)
    data.features[59] = poison
    sums, weights = all_sums(path, problem, data)
    totals = [
        sums_over(sums, weights, path, chosen, 64, most_units(60), Clip(clip_norm=0.5))
        for chosen in (units, np.append(units, 59))
    ]
    assert torch.equal(*totals)


def of_patients(units: np.ndarray, augmented: bool, clip_norm: float) -> Tensor:
    """The sum over these patients, of whom patient p has 1 + p % 3 records."""
    problem, of = replace(OTHERS["cnn"], scale=1), np.repeat(np.arange(30), 1 + np.arange(30) % 3)
    names = tuple(str(place).encode() for place in range(30))
    data = problem.records(len(of), Units(names=names, of=of.astype(np.int64)))
    sums = EngineSums(
        models=[problem.model()],
        engine=Opacus(),
        records=data,
        device="cpu",
        chunk=8,
        augmentation=ShiftFlip(multiplicity=2, pixels=1) if augmented else None,
        draws=[np.random.default_rng(2)],
    )
    return sums_over(
        sums,
        parameters_to_vector(problem.model().parameters()).detach()[None],
        "common",
        units,
        20,
        40,
        Clip(clip_norm=clip_norm),
    )


@pytest.mark.parametrize("augmented", [False, True])
@pytest.mark.parametrize("joining", [27, 28, 29])
def test_one_more_patient_moves_the_sum_by_its_own_mean_gradient_alone(joining: int, augmented: bool) -> None:
    """Whatever others have, of the same copies: the draws of one place are those of no other."""
    changes = []
    for others in (np.arange(2, 15), np.arange(11, 24)):
        changes.append(of_patients(np.append(others, joining), augmented, 0.1) - of_patients(others, augmented, 0.1))
        assert 0 < float(changes[-1].norm()) <= 0.1
    assert float((changes[0] - changes[1]).norm()) < 1e-12


def batches_of(sampler: Sampler, units: int, steps: int) -> list[Batch]:
    """The batches of some steps on so many units, where 1000 are declared."""
    run = Run(
        trainer=DpSgd(lr=1.0, clip_norm=1.0),
        sampler=sampler,
        schedule=Constant(),
        noise_multiplier=1.0,
        steps=steps,
        train_records=1000,
        adjacency=Adjacency.REPLACE_ONE if isinstance(sampler, FixedSize) else Adjacency.ADD_OR_REMOVE_ONE,
    )
    parts = tuple(np.array_split(np.arange(units), number_of_parts(sampler)))
    source = BatchAndNoise.from_streams([reproducible_streams(5, f"{units} units")], run, parts, share=False)
    return list(islice(source.batches_of_all_steps(), steps))


@pytest.mark.parametrize(
    "sampler", [Poisson(batch_size=50), CyclicPoisson(batch_size=20, parts=4), Shuffle(batch_size=100)], ids=str
)
def test_the_number_of_places_has_one_law_however_many_units_there_are(sampler: Sampler) -> None:
    """A sample of places tells nothing of the units; one of the batch sizes, as a check of this test, tells all."""
    few, many = (batches_of(sampler, units, 2000) for units in (700, 1100))
    assert all(batch.sizes.max() <= batch.places for batch in few + many)
    places = [[batch.places for batch in batches] for batches in (few, many)]
    sizes = [[number_of_places(int(batch.sizes.max())) for batch in batches] for batches in (few, many)]
    assert len(set(places[0])) > 2 and ks_2samp(*places).pvalue > 1e-6 > 1e-100 > ks_2samp(*sizes).pvalue


def test_batches_that_are_not_random_have_one_number_of_places() -> None:
    every = Poisson(batch_size=1000)
    assert {batch.places for units in (900, 1000, 1127) for batch in batches_of(every, units, 3)} == {1152}
    assert {batch.places for batch in batches_of(FixedSize(batch_size=64), 1000, 50)} == {64}


@pytest.mark.parametrize(("units", "rate"), [(100, Fraction(1, 20)), (1000, Fraction(1, 2)), (300, Fraction(9, 10))])
def test_more_units_of_a_secret_part_than_it_has_slots_are_all_but_impossible(units: int, rate: Fraction) -> None:
    """The exact tail of the binomial law."""
    chances = [math.comb(units, count) * rate**count * (1 - rate) ** (units - count) for count in range(units + 1)]
    most = most_joining(units, float(rate))
    assert sum(chances[most + 1 :]) < NEVER and (most == units or sum(chances[most:]) > NEVER / 2)


def test_a_record_more_takes_a_blank_place_and_all_places_are_alike() -> None:
    few, more = (draw_places(np.random.default_rng(1), np.arange(count), 12).tolist() for count in (8, 9))
    assert [unit for unit in more if unit != 8] == few[: more.index(8)] + few[more.index(8) + 1 :]
    counts = np.zeros(5)
    rng = np.random.default_rng(2)
    for _ in range(5000):
        counts += draw_places(rng, np.array([3]), 5) == 3
    assert counts.min() > 850
    assert sorted(draw_places(rng, np.arange(7), 3).tolist()) == [-1, -1, *range(7)]
