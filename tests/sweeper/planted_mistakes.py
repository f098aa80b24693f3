"""Mistakes that break a price, planted into the program: each changes one thing that the price relies on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dpsweep.trainers import randomness
from dpsweep.trainers.declarations import scores
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.losses import CrossEntropy
from dpsweep.trainers.declarations.scores import PrivateHoldout
from dpsweep.trainers.methods.transforms import Clip, GradientTransform
from dpsweep.trainers.randomness import Lattices, Streams, reproducible_streams
from dpsweep.trainers.training import gradient_sums
from dpsweep.trainers.training.batch_and_noise import Batch, BatchAndNoise, NoiseRows
from dpsweep.trainers.training.gradient_sums import EngineSums, Sum
from dpsweep.trainers.training.run import Run

Planted = Callable[[pytest.MonkeyPatch], None]


def no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as it is."""


def nothing_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are summed as they are."""
    monkeypatch.setattr(Clip, "factors", lambda self, norms: torch.ones_like(norms))


def clipped_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch's mean gradient is clipped, and not each record's."""
    monkeypatch.setattr(EngineSums, "over", _means_first(EngineSums.over, momentum=0.0))


def mostly_clipped_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine tenths of a sum are the batch's mean gradient, clipped as a whole."""
    over, wrong = EngineSums.over, _means_first(EngineSums.over, momentum=0.0)

    def mixed(self: EngineSums, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        right, late = over(self, rows, transforms), wrong(self, rows, transforms)
        return lambda weights, batch, shrink=1.0: (
            0.1 * right(weights, batch, shrink) + 0.9 * late(weights, batch, shrink)
        )

    monkeypatch.setattr(EngineSums, "over", mixed)


def weights_of_batch_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class weighs as its labels are rare in the batch, on the losses."""
    gradient = CrossEntropy.gradient

    def weighted(self: CrossEntropy, outputs: Tensor, targets: Tensor) -> Tensor:
        weights = _rarity(targets, outputs.shape[1]).to(outputs)
        return gradient(self, outputs, targets) * weights.expand(len(outputs), *outputs.shape[2:])[:, None]

    monkeypatch.setattr(CrossEntropy, "gradient", weighted)


def bounded_weights_of_batch_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class weighs as its labels are rare in the batch, on the bounded gradients, at most 1."""

    def weights(loss: CrossEntropy, targets: Tensor) -> Tensor:
        rarity = _rarity(targets, int(targets.max()) + 1)
        return (rarity / rarity.max()).double()

    monkeypatch.setattr(gradient_sums, "example_weights", weights)


def _rarity(targets: Tensor, classes: int) -> Tensor:
    counts = torch.bincount(targets.flatten(), minlength=classes)
    return (targets.numel() / classes / counts.clamp(min=1))[targets]


def rate_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are drawn at twice the rate that is charged."""
    draw = Poisson.draw_batch_indices
    monkeypatch.setattr(
        Poisson,
        "draw_batch_indices",
        lambda self, rows, available, records, rng: draw(self, rows, available, records // 2, rng),
    )


def bound_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are clipped at twice the declared norm."""
    factors = Clip.factors
    monkeypatch.setattr(
        Clip, "factors", lambda self, norms: factors(replace(self, clip_norm=2 * self.clip_norm), norms)
    )


def score_noise_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of a score have half the declared noise."""
    add = scores.add_gaussian_noise_on_lattice
    monkeypatch.setattr(scores, "add_gaussian_noise_on_lattice", lambda exact, std, *more: add(exact, std / 2, *more))


def score_noise_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each count of a score has the noise of the first one."""
    add = scores.add_gaussian_noise_on_lattice
    monkeypatch.setattr(
        scores, "add_gaussian_noise_on_lattice", lambda exact, std, *more: exact + add(0 * exact[:1], std, *more)
    )


def score_of_training_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The held-out score counts training records."""
    measure = PrivateHoldout.measure
    monkeypatch.setattr(
        PrivateHoldout,
        "measure",
        lambda self, model, data, *others: measure(self, model, replace(data, holdout=data.train), *others),
    )


def score_of_weighted_training_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts are right, and the value that is compared leans on the training records."""
    measure = PrivateHoldout.measure

    def leaning(self: PrivateHoldout, model: Any, data: Any, *others: Any) -> Any:
        return replace(measure(self, model, data, *others), value=len(data.train) / 1e6)

    monkeypatch.setattr(PrivateHoldout, "measure", leaning)


def score_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each held-out unit counts twice."""
    count = scores.count_right_and_wrong_units
    monkeypatch.setattr(scores, "count_right_and_wrong_units", lambda *given: 2 * count(*given))


def momentum_before_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The velocity of unclipped mean gradients is clipped."""
    monkeypatch.setattr(EngineSums, "over", _means_first(EngineSums.over, momentum=0.9))


def noise_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the declared noise."""
    drawn = BatchAndNoise.draw_standard_normal_noise
    monkeypatch.setattr(BatchAndNoise, "draw_standard_normal_noise", lambda self, like: drawn(self, like) / 2)


def std_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop takes half the declared standard deviation for the declared one, and rounds to its lattice."""
    declared = Run.noise_std.fget
    monkeypatch.setattr(Run, "noise_std", property(lambda self: declared(self) / 2))


def noise_halved_in_ten_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the declared noise on the last ten numbers: the bias of a logistic regression on ten classes."""
    _change_noise(monkeypatch, lambda noise: noise[:, -10:].div_(2))


def no_noise_in_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise in the eighth number."""
    _change_noise(monkeypatch, lambda noise: noise[:, 7].zero_())


def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise at all."""
    _change_noise(monkeypatch, lambda noise: noise.zero_())


def one_draw_for_two_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last number has the noise of the first one."""
    _change_noise(monkeypatch, lambda noise: noise[:, -1].copy_(noise[:, 0]))


def noise_of_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 16 processes adds a sixteenth of the variance, and one of them is summed."""
    drawn = BatchAndNoise.draw_standard_normal_noise
    monkeypatch.setattr(BatchAndNoise, "draw_standard_normal_noise", lambda self, like: drawn(self, like) / np.sqrt(16))


def divided_by_the_drawn_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are divided by the number of records that were drawn."""
    batches = BatchAndNoise.batches_of_all_steps

    def divided(self: BatchAndNoise) -> Iterator[Batch]:
        for batch in batches(self):
            self.__dict__["drawn_size"] = max(1, int(batch.sizes[0]))
            yield batch

    drawn, add = BatchAndNoise.draw_standard_normal_noise, Lattices.add_noise_to_sums
    sizes: list[float] = []

    def noise(self: BatchAndNoise, like: Tensor) -> Tensor:
        sizes[:] = [self.run.sampler.batch_size / self.__dict__["drawn_size"]]
        return drawn(self, like)

    monkeypatch.setattr(BatchAndNoise, "batches_of_all_steps", divided)
    monkeypatch.setattr(BatchAndNoise, "draw_standard_normal_noise", noise)
    monkeypatch.setattr(Lattices, "add_noise_to_sums", lambda self, sums, noise: add(self, sums, noise) * sizes[0])


def every_record_in_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No subsampling."""
    monkeypatch.setattr(
        Poisson,
        "draw_batch_indices",
        lambda self, rows, available, records, rng: (np.tile(np.arange(available), rows), np.full(rows, available)),
    )


def batches_from_a_permutation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record once an epoch in secret order, charged as Poisson's batches."""
    left: dict[int, list[int]] = {}

    def draw(self: Poisson, rows: int, available: int, records: int, rng: np.random.Generator) -> Any:
        batch = max(1, round(available * self.batch_size / records))
        order = left.get(id(rng)) or rng.permutation(available).tolist()
        taken, left[id(rng)] = order[:batch], order[batch:]
        return np.sort(np.array(taken, dtype=np.int64)), np.array([len(taken)])

    monkeypatch.setattr(Poisson, "draw_batch_indices", draw)


def same_noise_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of the first step is added at every step."""
    drawn = BatchAndNoise.draw_standard_normal_noise
    kept: dict[int, Tensor] = {}

    def noise(self: BatchAndNoise, like: Tensor) -> Tensor:
        if id(self) not in kept:
            kept.clear()
            kept[id(self)] = drawn(self, like)
        return kept[id(self)].clone()

    monkeypatch.setattr(BatchAndNoise, "draw_standard_normal_noise", noise)


def each_draw_for_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of each step is that of the next one too."""
    drawn = BatchAndNoise.draw_standard_normal_noise
    kept: dict[int, Tensor] = {}

    def noise(self: BatchAndNoise, like: Tensor) -> Tensor:
        if id(self) in kept:
            return kept.pop(id(self))
        kept[id(self)] = drawn(self, like)
        return kept[id(self)].clone()

    monkeypatch.setattr(BatchAndNoise, "draw_standard_normal_noise", noise)


def noise_of_the_wrong_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of earlier steps are taken in the wrong order."""
    add = NoiseRows.add_noise_to_sums

    def reversed_rows(self: NoiseRows, sums: Tensor, noise: Tensor, lattices: Lattices) -> Tensor:
        self._rows.reverse()
        try:
            return add(self, sums, noise, lattices)
        finally:
            latest = self._rows.popleft()
            self._rows.reverse()
            self._rows.appendleft(latest)

    monkeypatch.setattr(NoiseRows, "add_noise_to_sums", reversed_rows)


def banded_inverse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is a sum of few independent draws: the inverse of the matrix is banded, and not the matrix."""
    draws: dict[int, list[Tensor]] = {}

    def rows(self: NoiseRows, sums: Tensor, noise: Tensor, lattices: Lattices) -> Tensor:
        coefficients = [1.0, *(-value for value in self._others)]
        earlier = draws.setdefault(id(self), [])
        earlier.insert(0, noise.clone())
        row = sum(c * draw for c, draw in zip(coefficients, earlier, strict=False))
        return lattices.add_noise_to_sums(sums, row)

    monkeypatch.setattr(NoiseRows, "add_noise_to_sums", rows)


def rows_without_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise is independent, at the declared multiplier."""
    monkeypatch.setattr(
        NoiseRows, "add_noise_to_sums", lambda self, sums, noise, lattices: lattices.add_noise_to_sums(sums, noise)
    )


def parts_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step samples all records at the rate that was charged for its part."""
    period = BatchAndNoise._draw_period

    def from_all(self: BatchAndNoise, streams: Streams, rows: int) -> Any:
        everything = np.sort(np.concatenate(self.parts))
        return period(replace(self, parts=(everything,) * len(self.parts)), streams, rows)

    monkeypatch.setattr(BatchAndNoise, "_draw_period", from_all)


def public_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of every training comes from one number."""

    def streams() -> Streams:
        secret = _numbered_streams()
        return Streams(**{**secret.__dict__, "noise": reproducible_streams(0, "everybody's").noise})

    monkeypatch.setattr(randomness, "secret_streams", streams)


def noise_off_the_lattice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noisy sums are not rounded."""
    monkeypatch.setattr(Lattices, "add_noise_to_sums", lambda self, sums, noise: sums + noise * self.stds)


def empty_batches_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step whose batch is empty adds no noise."""
    batches = BatchAndNoise.batches_of_all_steps
    monkeypatch.setattr(
        BatchAndNoise, "batches_of_all_steps", lambda self: (batch for batch in batches(self) if len(batch.units))
    )


def shared_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """All trainings draw the same batches, one after another."""

    def streams() -> Streams:
        secret = _numbered_streams()
        return Streams(**{**secret.__dict__, "subsampling": reproducible_streams(0, "everybody's").subsampling})

    monkeypatch.setattr(randomness, "secret_streams", streams)


def _change_noise(monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor], object]) -> None:
    drawn = BatchAndNoise.draw_standard_normal_noise

    def noise(self: BatchAndNoise, like: Tensor) -> Tensor:
        change(values := drawn(self, like))
        return values

    monkeypatch.setattr(BatchAndNoise, "draw_standard_normal_noise", noise)


_COUNT = Counter[str]()


def _numbered_streams() -> Streams:
    """Streams that are new at each call, and the same in every run of a test."""
    _COUNT["streams"] += 1
    return reproducible_streams(1, f"training {_COUNT['streams']}")


def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of secret streams: new ones at each call, the same in every run of a test."""
    _COUNT.clear()
    monkeypatch.setattr(randomness, "secret_streams", _numbered_streams)


def _means_first(over: Callable[..., Sum], momentum: float) -> Callable[..., Sum]:
    def means_first(self: EngineSums, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        inner = over(self, rows, [Clip(clip_norm=1e30)] * len(rows))
        velocities = [0.0] * len(rows)

        def total(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            sums = inner(weights, batch)
            for row, transform in enumerate(transforms):
                size = max(1, int(batch.sizes[row]))
                velocities[row] = momentum * velocities[row] + sums[row] / size
                norm = torch.linalg.vector_norm(velocities[row])[None]
                sums[row] = size * velocities[row] * transform.factors(norm)
            return sums

        return total

    return means_first
