"""Trainings with canaries whose noisy steps an attacker observes.

*Observed training.* The loop, sampler, sums, noise and update are those of every run. The attacker is the reader whom
the price assumes: it knows the weights before each step and sees each noisy mean of gradients. It is put between the
loop and the method's update, which is post-processing, so no other code differs.

*Canaries that are gradients*: each along a coordinate of its own, and far longer than the bound. They take the place of
a model's gradients, so that one step on neighbours is as far apart as the law allows: the strongest attack there is on
sampler, transform, noise, divisor and loop. The weights have the model's own tensors, and the canaries' coordinates lie
in every one of them. The engine, which computes gradients of a model, is not run: records attack it. Every exact sum is
known here, so every noisy one gives its noise away, in all coordinates: it is collected for the tests of
`dpsweep.accounting.lower_bounds.noise_law`.

*Canaries that are records*: they go through the model and the engine like every other record. Inputs of different
canaries have few numbers in common and labels are drawn at random, so that their gradients are nearly orthogonal and
nobody would predict the labels. The white-box score of a canary is the inner product of each noisy step with the
canary's own gradient at the weights before the step; the black-box score is by how much its loss fell in the course of
training.

Source: Nasr et al. 2023 (Tight Auditing of Differentially Private Machine Learning); Steinke, Nasr, Jagielski 2023, who
call canaries that are gradients Dirac canaries.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, jvp

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.noise_law import ReleasedNoise, TensorLayout
from dpsweep.trainers.data.records import IGNORED, Records, Scaling, Units
from dpsweep.trainers.data.split import units_of_each_cyclic_part
from dpsweep.trainers.declarations.batch_sampling import CyclicPoisson
from dpsweep.trainers.declarations.clip_schedules import noise_multiplier_factor_at_step
from dpsweep.trainers.declarations.losses import Loss
from dpsweep.trainers.engines.interface import trainable_parameters
from dpsweep.trainers.methods.method import Trainer
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.methods.updates import Update
from dpsweep.trainers.randomness import Streams, lattice_spacing
from dpsweep.trainers.training.batch_and_noise import Batch
from dpsweep.trainers.training.gradient_sums import Sum, Sums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Outcome, Run

Observer = Callable[[Tensor, Tensor, float], None]
"""Called at each step with the weights [P] before it, its noisy mean gradient [P], and the std of the noise in it."""


def train_together_with_observers(
    runs: Sequence[Run],
    models: Sequence[nn.Module],
    sums: Sums,
    records: Records,
    streams: Sequence[Streams],
    observers: Sequence[Observer],
    *,
    device: torch.device | str,
    share: bool = False,
) -> tuple[Outcome, ...]:
    """`train_together`, with an observer for each run; the models are trained in place."""
    seen = _ObservedSums(inner=sums)
    observed = [
        replace(
            run,
            trainer=_trainer_with_observed_update(
                run.trainer, _ObservedUpdate(run.trainer.update, place, seen, observer)
            ),
        )
        for place, (run, observer) in enumerate(zip(runs, observers, strict=True))
    ]
    return train_together(observed, models, seen, records, streams, device=device, share=share)


@dataclass(frozen=True, kw_only=True, eq=False)
class _ObservedSums:
    """The sums of `inner`; keeps a copy of the weights at which each run's last sum was computed."""

    inner: Sums
    weights: dict[int, Tensor] = field(default_factory=dict)

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """The inner sums over these models."""
        inner = self.inner.over(rows, transforms)

        def copy_weights_and_compute_inner_sums(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            self.weights.update({row: vector.clone() for row, vector in zip(rows, weights, strict=True)})
            return inner(weights, batch, shrink)

        return copy_weights_and_compute_inner_sums


@dataclass(frozen=True, eq=False)
class _ObservedUpdate(Update[Any]):
    """The update of one run, whose observer sees each gradient first."""

    inner: Update[Any]
    place: int
    sums: _ObservedSums
    observer: Observer

    def start(self, weights: Tensor) -> Any:
        """The inner update's state."""
        return self.inner.start(weights)

    def direction(self, state: Any, gradient: Tensor, noise_std: Tensor) -> tuple[Any, Tensor]:
        """The inner update's direction."""
        self.observer(self.sums.weights[self.place], gradient.flatten(), float(noise_std.flatten()[0]))
        return self.inner.direction(state, gradient, noise_std)


def _trainer_with_observed_update(trainer: Trainer, update: Update[Any]) -> Trainer:
    """The method with an observed update; everything else is the method's own."""
    observed, kind = copy.copy(trainer), type(trainer)
    object.__setattr__(observed, "__class__", type(kind.__name__, (kind,), {"update": update}))  # it may be a property
    observed.__dict__["update"] = update
    return observed


MOST_CELLS, OFF = 2**15, 0.02
"""Numbers of fewer cells of the lattice are checked; float32 rounds them by less than `OFF` cells."""

LARGEST = 32.0
"""Noise is compared where the sum is at most so many of its standard deviations: float32 rounds no more than 2e-6."""

LENGTH = 1000.0
"""The length of a canary's gradient before the transform, in multiples of the bound."""


def layout_of_trainable_tensors(model: nn.Module) -> TensorLayout:
    """The trainable tensors of a model, in the order in which they are flattened."""
    chosen = {id(parameter) for parameter in trainable_parameters(model)}
    named = [(name, one.numel()) for name, one in model.named_parameters() if id(one) in chosen]
    return TensorLayout(names=tuple(name for name, _ in named), sizes=tuple(size for _, size in named))


class _ZeroTensorsModule(nn.Module):
    """Tensors of these sizes, all 0, in place of a model; no gradient of it is ever computed."""

    def __init__(self, layout: TensorLayout) -> None:
        super().__init__()
        self.tensors = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in layout.sizes])

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = inputs * self.tensors[0][:1].sum()
        return outputs


@dataclass(frozen=True, kw_only=True, eq=False)
class CanaryGradients:
    """Sums of the gradients of canaries alone: unit i has a gradient along coordinate `coordinates[i]`.

    Its sign is `signs[i]`; a unit with sign 0 has a gradient of 0. `latest` has each run's last sum [P].
    """

    coordinates: Tensor
    signs: Tensor
    latest: dict[int, Tensor] = field(default_factory=dict)

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """The sums of bounded gradients."""

        def bounded_canary_gradient_sums(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            sums, last = torch.zeros_like(weights, dtype=torch.float64), 0
            for row, (size, transform) in enumerate(zip(batch.sizes, transforms, strict=True)):
                first, last = (0, len(batch.units)) if batch.common else (last, last + int(size))
                units = torch.from_numpy(batch.units[first:last]).to(weights.device)
                bounded = transform.with_smaller_bound(shrink)
                norms = weights.new_full(
                    (len(units),), LENGTH * (bounded.norm_bound if bounded.norm_bound < torch.inf else 1.0)
                )
                values = (norms * bounded.factors(norms)).double() * self.signs[units]
                sums[row].index_add_(0, self.coordinates[units], values)
            self.latest.update({run: vector.clone() for run, vector in zip(rows, sums, strict=True)})
            return sums

        return bounded_canary_gradient_sums


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientScores:
    """What the noisy steps say of each canary [m]: the sum of its coordinate, and its variance over the steps.

    Of `numbers` noisy numbers, `off_lattice` were no multiple of the spacing of their noise: such a number depends on
    the sum that the noise was added to (Mironov 2012).
    """

    total: NDArray[np.float64]
    variation: NDArray[np.float64]
    numbers: int
    off_lattice: int


@dataclass(kw_only=True, eq=False)
class _CoordinateObserver:
    """An observer of the run at `place`: the first two moments of the canaries' coordinates so far, and all noise.

    All are in standard deviations of the noise as the run declares it, whatever the loop that is audited took.
    Correlated noise is turned back into independent draws by the `last` noisy and exact sums [2, P], the newest first,
    and a canary of part [m] counts by its share in them.
    """

    run: Run
    place: int
    sums: CanaryGradients
    seen: Tensor
    part: Tensor
    noise: ReleasedNoise
    total: Tensor
    squares: Tensor
    steps: int = 0
    numbers: int = 0
    off_lattice: int = 0
    last: list[Tensor] = field(default_factory=list)

    def __call__(self, weights: Tensor, gradient: Tensor, noise_std: float) -> None:
        declared = declared_noise_std_of_mean_gradient(self.run, self.steps)
        released = gradient.double().cpu() / (declared or 1.0)
        std = declared * self.run.sampler.batch_size
        exact = self.sums.latest[self.place].cpu() / (std or 1.0)
        coefficients = self.run.noise_coefficients
        self.last = [torch.stack([released, exact]), *self.last][: len(coefficients)]
        if declared:
            cells = coefficients[0] * released * (std / lattice_spacing(std))
            cells = cells[cells.abs() < MOST_CELLS]
            self.numbers += len(cells)
            self.off_lattice += int(((cells - cells.round()).abs() > OFF).sum())
        terms = torch.stack([factor * both for factor, both in zip(coefficients, self.last, strict=False)])
        independent, shifts = terms.sum(dim=0)
        if declared:
            resolved = torch.stack([exact for _, exact in self.last]).abs().amax(dim=0) <= LARGEST
            rounded = (1 + (lattice_spacing(std) / std) ** 2 / 12) ** 0.5  # rounding adds to the noise's variance
            self.noise.add_step_noise(((independent - shifts) / rounded).numpy(), resolved.numpy())
        values = independent[self.seen] * self._share_of_each_canary_in_step()
        self.total, self.squares = self.total + values, self.squares + values.square()
        self.steps += 1

    def _share_of_each_canary_in_step(self) -> Tensor:
        """The share [m] of each canary's last possible participation in this step; 1 without parts."""
        parts, coefficients = _number_of_parts(self.run), torch.tensor(self.run.noise_coefficients, dtype=torch.float64)
        shares = torch.cat([coefficients, coefficients.new_zeros(parts - len(coefficients))])
        return shares[(self.steps - self.part) % parts] * (self.steps >= self.part)

    def gradient_scores_of_canaries(self) -> GradientScores:
        steps = max(1, self.steps)
        variation = self.squares / steps - (self.total / steps).square()
        return GradientScores(
            total=self.total.numpy(),
            variation=variation.numpy(),
            numbers=self.numbers,
            off_lattice=self.off_lattice,
        )


def declared_noise_std_of_mean_gradient(run: Run, step: int) -> float:
    """The standard deviation of the noise in a step's mean gradient, by the declared multiplier, bound and schedule."""
    if not run.noise_multiplier:
        return 0.0
    scale = run.bounds.factor(step, run.steps) * noise_multiplier_factor_at_step(run.bounds, step, run.steps)
    return run.noise_multiplier * run.trainer.transform.norm_bound * scale / run.sampler.batch_size


def train_and_score_gradient_canaries(
    runs: Sequence[Run],
    coins: NDArray[np.bool_],
    adjacency: Adjacency,
    streams: Sequence[Streams],
    noise: ReleasedNoise,
    *,
    share: bool = False,
) -> tuple[GradientScores, ...]:
    """The scores of canaries with these coins [m] after each of these runs, which are trained together.

    The weights have the layout of `noise`, to which all noise of the runs is added. Where a record is added or removed,
    the canaries that are absent are not there. Where one is replaced, an absent canary is another record in its place,
    with the opposite gradient; all other records have gradients of 0.
    """
    layout = noise.layout
    if len(coins) > layout.vector_length:
        raise ValueError(
            f"Expected audit.canaries={len(coins)} <= {layout.vector_length}, the numbers that are trained."
        )
    seen = torch.from_numpy(layout.spaced_places(len(coins)))
    sums = _canary_gradients_from_coins(coins, seen, adjacency, runs[0].train_records)
    canaries, part = _numbered_records(torch.arange(len(coins))), torch.zeros(len(coins), dtype=torch.int64)
    for place, units in enumerate(units_of_each_cyclic_part(canaries, _number_of_parts(runs[0]), adjacency)):
        part[torch.from_numpy(units)] = place
    adding = Adjacency(adjacency) is Adjacency.ADD_OR_REMOVE_ONE
    records = _numbered_records(torch.from_numpy(np.flatnonzero(coins)) if adding else torch.arange(len(sums.signs)))
    models = [_ZeroTensorsModule(layout) for _ in runs]
    observers = [
        _CoordinateObserver(
            run=run,
            place=place,
            sums=sums,
            seen=seen,
            part=part,
            noise=noise,
            total=torch.zeros(len(coins), dtype=torch.float64),
            squares=torch.zeros(len(coins), dtype=torch.float64),
        )
        for place, run in enumerate(runs)
    ]
    train_together_with_observers(runs, models, sums, records, streams, observers, device="cpu", share=share)
    return tuple(one.gradient_scores_of_canaries() for one in observers)


def _number_of_parts(run: Run) -> int:
    return run.sampler.parts if isinstance(run.sampler, CyclicPoisson) else 1


def _numbered_records(numbers: Tensor) -> Records:
    return Records(features=numbers[:, None].float(), labels=torch.zeros(len(numbers), dtype=torch.int64))


def _canary_gradients_from_coins(
    coins: NDArray[np.bool_], places: Tensor, adjacency: Adjacency, records: int
) -> CanaryGradients:
    if Adjacency(adjacency) is Adjacency.ADD_OR_REMOVE_ONE:
        present = places[torch.from_numpy(coins)]
        return CanaryGradients(coordinates=present, signs=torch.ones(len(present), dtype=torch.float64))
    if len(coins) > records:
        raise ValueError(f"Expected audit.canaries={len(coins)} <= {records}, the records that one may replace.")
    coordinates, signs = torch.zeros(records, dtype=torch.int64), torch.zeros(records, dtype=torch.float64)
    coordinates[: len(coins)] = places
    signs[: len(coins)] = torch.from_numpy(np.where(coins, 1.0, -1.0))
    return CanaryGradients(coordinates=coordinates, signs=signs)


TIMES = 4.0
"""The norm of a canary's inputs, in mean norms of the inputs that it is put among, which are at least 1 here."""

FAR = 4.0
"""Standard deviations of the numbers that are predicted between their mean and the label of a canary."""

NAME = b"audit canary "


def replace_stored_features_by_model_inputs(records: Records) -> Records:
    """The same records, with features that are the model's inputs."""
    scaled = records.inputs(slice(None), records.labels.device)
    return replace(records, features=scaled, scaling=Scaling(), stored=None)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordCanaries:
    """`records` [m] are the canaries, whose features are a model's inputs, as those of all records here."""

    records: Records

    @classmethod
    def draw_for_records(
        cls, records: Records, count: int, classes: int, words: int | None, rng: np.random.Generator
    ) -> RecordCanaries:
        """So many canaries for these records, whose labels are below `classes`; numbers if there is one class.

        `words` is the size of the vocabulary if inputs are token numbers, else None.
        """
        features = (
            _random_tokens(records, count, words, rng)
            if words is not None
            else _random_sparse_canary_inputs(records, count, rng)
        )
        return cls(
            records=Records(features=features, labels=_random_canary_labels(records, features, count, classes, rng))
        )

    def insert_present_canaries_into_records(
        self, records: Records, coins: NDArray[np.bool_], adjacency: Adjacency
    ) -> Records:
        """The records with the canaries that are present.

        Where one is replaced, canary i takes the place of record i; where one is added, it comes after the others.
        """
        chosen = self.records.select(coins)
        if Adjacency(adjacency) is Adjacency.REPLACE_ONE:
            if len(coins) > len(records):
                raise ValueError(f"Expected audit.records_canaries={len(coins)} <= {len(records)}, the records.")
            features, labels = records.stored_features(), records.labels.clone()
            places = torch.from_numpy(np.flatnonzero(coins))
            features[places], labels[places] = chosen.stored_features(), chosen.labels
            return replace(records, features=features, labels=labels, stored=None)
        return replace(
            records,
            features=torch.cat([records.stored_features(), chosen.stored_features()]),
            labels=torch.cat([records.labels, chosen.labels]),
            units=None if records.units is None else _units_with_canaries(records.units, np.flatnonzero(coins)),
            stored=None,
        )

    def loss_of_each_canary(self, model: nn.Module, loss: Loss, device: torch.device | str) -> NDArray[np.float64]:
        """The loss of each canary [m] under the model."""
        inputs, targets = self._all_inputs_and_targets(device)
        with torch.no_grad():
            outputs = model(inputs)
            values = [float(loss(outputs[i : i + 1], targets[i : i + 1])) for i in range(len(targets))]
        return np.array(values)

    def inner_products_of_direction_and_gradients(
        self, model: nn.Module, weights: Tensor, direction: Tensor, loss: Loss, device: torch.device | str
    ) -> Tensor:
        """The inner products [m] of a direction [P] with each canary's gradient at these weights [P].

        It is one pass in forward mode: the change of the outputs along the direction, times the loss's gradient.
        """
        inputs, targets = self._all_inputs_and_targets(device)
        names, likes = zip(*((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True)
        at, along = (_parameters_by_name_from_vector(names, likes, vector) for vector in (weights, direction))

        def model_outputs_at_parameters(parameters: dict[str, Tensor]) -> Tensor:
            return cast(Tensor, functional_call(model, parameters, (inputs,)))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch, as it loads its forward mode
            values, change = jvp(model_outputs_at_parameters, (at,), (along,))[:2]
        products: Tensor = loss.gradient(values.detach(), targets) * change
        return products.detach().flatten(1).sum(dim=1).double().cpu()

    def _all_inputs_and_targets(self, device: torch.device | str) -> tuple[Tensor, Tensor]:
        return self.records.inputs(slice(None), device), self.records.targets(slice(None), device)


@dataclass(kw_only=True, eq=False)
class Alignment:
    """An observer of a training: adds up the alignments of its noisy steps with each canary's gradient."""

    canaries: RecordCanaries
    model: nn.Module
    loss: Loss
    device: torch.device | str
    total: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.total = np.zeros(len(self.canaries.records))

    def __call__(self, weights: Tensor, gradient: Tensor, noise_std: float) -> None:
        """Adds the alignments of one step."""
        direction = gradient / (noise_std or 1.0)
        self.total += self.canaries.inner_products_of_direction_and_gradients(
            self.model, weights, direction, self.loss, self.device
        ).numpy()


def _parameters_by_name_from_vector(
    names: Sequence[str], likes: Sequence[nn.Parameter], vector: Tensor
) -> dict[str, Tensor]:
    """The parts of a flat vector by the names of the parameters."""
    parts = torch.split(vector.detach(), [like.numel() for like in likes])
    return {name: part.view(like.shape) for name, like, part in zip(names, likes, parts, strict=True)}


def _random_sparse_canary_inputs(records: Records, count: int, rng: np.random.Generator) -> Tensor:
    """Inputs that are 0 but for a few numbers, disjoint where they fit, and of a norm that stands out."""
    shape = records.input_shape
    size = int(np.prod(shape))
    each = max(1, size // count)
    norms = records.stored_features().flatten(1).norm(dim=1)
    value = TIMES * max(1.0, float(norms.mean()) if len(norms) else 1.0) / each**0.5
    places = np.concatenate([rng.permutation(size) for _ in range(-(-count * each // size))])
    features = torch.zeros(count, size)
    for canary in range(count):
        features[canary, torch.from_numpy(places[canary * each : (canary + 1) * each])] = value
    return features.view(count, *shape)


def _random_tokens(records: Records, count: int, words: int, rng: np.random.Generator) -> Tensor:
    """Token numbers, each drawn at random."""
    drawn = rng.integers(0, words, (count, *records.input_shape))
    return torch.from_numpy(drawn).to(records.features.dtype)


def _random_canary_labels(
    records: Records, features: Tensor, count: int, classes: int, rng: np.random.Generator
) -> Tensor:
    """What is drawn at random for each canary: a class, labels, the next tokens, or a number far from the others."""
    if records.labels.ndim > 1 and records.labels.dtype == torch.float32:
        return torch.from_numpy(rng.integers(0, 2, (count, classes))).float()
    if records.labels.ndim > 1:
        labels = torch.full(features.shape, IGNORED, dtype=torch.int64)
        labels[:, :-1] = features[:, 1:].long()
        return labels
    if records.labels.dtype == torch.int64:
        return torch.from_numpy(rng.integers(0, classes, count))
    signs = torch.from_numpy(np.where(rng.random(count) < 0.5, -1.0, 1.0)).float()
    return records.labels.mean() + FAR * records.labels.std() * signs


def _units_with_canaries(units: Units, canaries: NDArray[np.int64]) -> Units:
    """The units, and one more for each canary."""
    names = (*units.names, *(NAME + str(canary).encode() for canary in canaries.tolist()))
    return Units(names=names, of=np.concatenate([units.of, len(units.names) + np.arange(len(canaries))]))
