"""Scores of trained models: the records that are read, the event that is charged, and the 95 % interval.

A score of private records accesses private data and declares this by its event. It reads held-out records, so training
and scoring use disjoint populations. A score of a public test set costs nothing, because the user declared that set
public. The default score is the mean of the loss's quality in [0, 1] over the records, which is the accuracy if labels
are classes; `metric` selects another number (`trainers/declarations/metrics.py`). The 95 % interval covers the noise
and the finite number of records. Counts of right and wrong predictions have L2 sensitivity 1 per unit, for any number
of records in a unit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsweep.accounting.codec import fraction, positive, positive_int
from dpsweep.accounting.events.build import DpEvent, noisy_table
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.places import BLANK, draw_passes, spread_over_places
from dpsweep.trainers.declarations.covering_intervals import NoisyCount, share_interval
from dpsweep.trainers.declarations.estimates import Estimate, accuracy_with_wilson_interval, noisy_accuracy
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY
from dpsweep.trainers.declarations.metrics import ACCURACY, BINS, POSITIVE, Metric, metric_of
from dpsweep.trainers.randomness import FINE, add_gaussian_noise_on_lattice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.declarations.losses import Loss


EXAMPLES_PER_PASS = 64
"""The places of a forward pass. A float32 kernel rounds a record by its place and by the batch's shape."""

_FLOATS = 2**26
"""The most outputs of a forward pass, where an example has outputs for each position."""


def count_right_and_wrong_units(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    rng: np.random.Generator,
    loss: Loss = CROSS_ENTROPY,
) -> NDArray[np.float64]:
    """The pair of counts [2] of right and wrong units; each unit adds q and 1 - q, where q is its mean quality.

    Guarantee: one unit changes the pair by at most 1 in L2 norm, for any number of records: it changes no other unit's
    predictions (`draw_passes`), of which `rng` draws the places.
    """
    shares = records.mean_quality_of_each_unit(value_per_record(model, records, device, loss.quality, rng))
    return np.array([shares.sum(), (1 - shares).sum()])


def count_units_in_metric_cells(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    metric: Metric,
    rng: np.random.Generator | None,
) -> NDArray[np.float64]:
    """The metric's table [cells]; a unit of several records adds to each cell the share of its records there.

    Guarantee: one unit changes the table by at most 1 in L2 norm, for any number of records, and never changes its
    size. For `rng` see `value_per_record`.
    """
    cells = value_per_record(model, records, device, metric.cell_indices, rng).astype(np.int64)
    size = metric.number_of_cells(_number_of_model_outputs(model, records.input_shape, device))
    return np.bincount(cells, weights=records.weight_of_each_record_in_unit, minlength=size).astype(np.float64)


def quality_per_record(
    model: nn.Module, records: Records, device: torch.device | str, loss: Loss
) -> NDArray[np.float64]:
    """The quality of the model's output for each record [n], all of them public."""
    return value_per_record(model, records, device, loss.quality, None)


def records_per_forward_pass(
    model: nn.Module, input_shape: tuple[int, ...], positions: tuple[int, ...], device: torch.device | str, most: int
) -> int:
    """The number of records in a forward pass: `most`, or fewer if each has outputs for many positions.

    `positions` is the shape of a record's target, () for a class or a number. The number depends on no record.
    """
    if not positions:
        return most
    return max(1, min(most, _FLOATS // (_number_of_model_outputs(model, input_shape, device) * math.prod(positions))))


def _number_of_model_outputs(model: nn.Module, input_shape: tuple[int, ...], device: torch.device | str) -> int:
    """The number of the model's outputs, measured on an all-zero record, so that no real record is needed."""
    import torch

    blank = torch.zeros((1, *input_shape), dtype=torch.float32, device=device)
    with evaluation_mode(model):
        return int(model(blank).shape[1])


def value_per_record(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    function: Callable[[Tensor, Tensor], Tensor],
    rng: np.random.Generator | None,
) -> NDArray[np.float64]:
    """The value of `function` on each record's outputs and target [n], in passes of one shape.

    Private records need `rng`, the trial's secret generator of scores: see `draw_passes`. Blank places have zeros.
    """
    values, positions = np.zeros(len(records)), tuple(records.labels.shape[1:])
    size = records_per_forward_pass(model, records.input_shape, positions, device, EXAMPLES_PER_PASS)
    with evaluation_mode(model):
        for places in draw_passes(len(records), size, rng):
            taken = places != BLANK
            index = places[taken]
            inputs = spread_over_places(records.inputs(index, device), places)
            targets = spread_over_places(records.targets(index, device), places)
            values[index] = function(model(inputs), targets).cpu().numpy()[taken]
    return values


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, without gradients; each module has its own mode again at the end, also an error."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


class Score(ABC):
    """Measures a trained model, and declares beforehand the event that a measurement costs.

    Every score inherits from it. `every` is the number of steps between points of the learning curve, None without one.
    `metric` is the name of the metric. `reads` names the records that are scored: train, holdout or test. Without
    `is_measured` no record is scored.

    *Guarantee*: `measure` touches private records only through one mechanism whose cost is `event`.
    """

    every: int | None = None
    metric: str = ACCURACY
    reads: str = "holdout"
    is_measured: ClassVar[bool] = True

    @property
    def measured(self) -> Metric | None:
        """The metric; None for the accuracy."""
        return None

    @property
    @abstractmethod
    def statement(self) -> str:
        """One sentence for the reader of a report: the records that are scored, and the noise."""

    @abstractmethod
    def event(self, adjacency: Adjacency) -> DpEvent | None:
        """The event of one measurement of one trial for such neighbours, or None if no private record is read."""

    @abstractmethod
    def train_records(self, records: int, adjacency: Adjacency) -> int:
        """The nominal number of private units left for training, out of a nominal `records`.

        Under REPLACE_ONE the number of records is public, and this number is exact.
        """

    @abstractmethod
    def check(self, test_records: int, *, public: bool) -> None:
        """Raises ValueError if this score does not fit a data set with `test_records` public test records.

        `public` is true if all records of the data set were declared public, not only the test records.
        """

    @abstractmethod
    def split(self, private: Records, test: Records | None, adjacency: Adjacency) -> Split:
        """The split into training records and the records that this score reads."""

    @abstractmethod
    def measure(
        self,
        model: nn.Module,
        data: Split,
        rng: np.random.Generator,
        device: torch.device | str,
        loss: Loss = CROSS_ENTROPY,
    ) -> Estimate:
        """The score of the model on the records of `data` that this score reads."""

    def intervals_at_level(
        self, counts: Sequence[float], level: float, *, whole_units: bool
    ) -> Mapping[str, tuple[float, float]]:
        """Intervals of a measurement that each miss with probability at most `level`, by the label of the metric.

        `counts` are those of the estimate; with `whole_units` each unit adds 1 to one of them, otherwise fractions. By
        default there is none.
        """
        return {}

    def likely_counts(self, sizes: Sequence[float], share: float) -> tuple[float, ...] | None:
        """The counts where classes have these sizes [classes] and the score is about `share`; None if unknown."""
        return None


def scored_records_of_split(score: Score, split: Split) -> Records:
    """The records that a score reads: those that it names by `reads`, else the held-out ones, else the public ones."""
    parts = {"train": split.train, "holdout": split.holdout, "test": split.test}
    named = parts.get(score.reads)
    records = next((part for part in (named, split.holdout, split.test) if part is not None), None)
    if records is None:
        raise ValueError("Expected a score that reads held-out private or public records.")
    return records


def number_of_noisy_counts(score: Score, classes: int) -> int:
    """The number of noisy counts that one measurement releases, for a data set with `classes` classes."""
    if not score.is_measured:
        return 0
    metric = score.measured
    return 2 if metric is None else metric.number_of_cells(classes)


def check_metric_fits_classes(score: Score, classes: int, loss: Loss) -> None:
    """Raises ValueError if the score's metric is not defined for `classes` classes (1 if the label is a number)."""
    metric = score.measured
    if metric is None:
        return
    if loss.per_position:
        raise ValueError(f"Expected score.metric={score.metric} to be {ACCURACY} with loss=next_token.")
    if loss.several_labels:
        raise ValueError(f"Expected score.metric={score.metric} to be {ACCURACY} where a record has several labels.")
    if classes < 2 or loss.labels != "int64":
        raise ValueError(f"Expected score.metric={score.metric} to be {ACCURACY} where the label is a number.")
    metric.check_class_count(classes)


@dataclass(frozen=True, kw_only=True)
class _MetricScore(Score):
    """The fields of a score by any metric."""

    every: int | None = None
    metric: str = ACCURACY
    positive: int = POSITIVE
    bins: int = BINS

    @property
    def measured(self) -> Metric | None:
        """The metric; None for the accuracy."""
        return metric_of(self.metric, positive=self.positive, bins=self.bins)

    @property
    def count_noise_std(self) -> float:
        """The standard deviation of the noise of each count."""
        return 0.0

    def intervals_at_level(
        self, counts: Sequence[float], level: float, *, whole_units: bool
    ) -> Mapping[str, tuple[float, float]]:
        """The intervals of the metric from its counts and their noise."""
        metric, std = self.measured, self.count_noise_std
        if metric is not None:
            return metric.intervals_at_level(np.asarray(counts), std, level, whole_units=whole_units)
        right, wrong = (NoisyCount(value=count, std=std) for count in counts)
        return {ACCURACY: share_interval(right, wrong, level, whole_units=whole_units)}

    def likely_counts(self, sizes: Sequence[float], share: float) -> tuple[float, ...] | None:
        """Those of the metric."""
        metric, units = self.measured, sum(sizes)
        return (units * share, units * (1 - share)) if metric is None else metric.likely_counts(sizes, share)


@dataclass(frozen=True, kw_only=True)
class PrivateHoldout(_MetricScore):
    """The accuracy on held-out private records from two noisy counts: of right and of wrong predictions.

    Each record adds 1 to one of the two counts. A unit of several records adds s and 1 - s, where s is the share of its
    records that are right. So one event covers the pair, and the accuracy is the mean over units. The exact number of
    held-out units is never used. `noise_std` is None until the plan has chosen it.

    Any other `metric` replaces the pair by a table of counts, with the same noise on every cell and the same event. The
    L2 sensitivity of both is 1 if a unit is added or removed, and the square root of 2 if one is replaced
    (`dpsweep.accounting.events.build` has the proof).
    """

    fraction: float
    noise_std: float | None = None

    def __post_init__(self) -> None:
        if self.every is not None:
            raise ValueError(
                f"Expected score.every={self.every} to be null with score=private: each look would have to be charged."
            )
        fraction("fraction", self.fraction)
        _ = self.measured
        if self.noise_std is not None:
            positive("noise_std", self.noise_std)

    @property
    def statement(self) -> str:
        """States the held-out fraction and the noise."""
        std = self.count_noise_std
        return (
            f"{_capitalized_metric_name(self.measured)} on {self.fraction:.0%} of the private records, held out from "
            f"training; counts carry Gaussian noise of standard deviation {std:.3g} and are charged."
        )

    @property
    def count_noise_std(self) -> float:
        """The noise that the plan has chosen."""
        if self.noise_std is None:
            raise ValueError("Expected noise_std=None to be a number; the plan chooses it.")
        return float(self.noise_std)

    def event(self, adjacency: Adjacency) -> DpEvent:
        """One Gaussian mechanism on the pair or the table of counts, to which each unit adds numbers that sum to 1."""
        return noisy_table(noise_std=self.count_noise_std, adjacency=adjacency)

    def train_records(self, records: int, adjacency: Adjacency) -> int:
        """The nominal remainder, at least 1; public for every outcome of the split."""
        from dpsweep.trainers.data.split import number_of_records_outside_position_mask

        positive_int("records", records)
        replacing = Adjacency(adjacency) is Adjacency.REPLACE_ONE
        remainder = (
            number_of_records_outside_position_mask(records, self.fraction)
            if replacing
            else round(records * (1 - self.fraction))
        )
        return max(1, remainder)

    def check(self, test_records: int, *, public: bool) -> None:
        """Refuse a data set without private records."""
        if public:
            raise ValueError("Expected score=public or score=training with dataset.public=true: no record is private.")

    def split(self, private: Records, test: Records | None, adjacency: Adjacency) -> Split:
        """Two disjoint parts of the private records."""
        from dpsweep.trainers.data.split import split_off_holdout

        return split_off_holdout(private, fraction=self.fraction, adjacency=adjacency, test=test)

    def measure(
        self,
        model: nn.Module,
        data: Split,
        rng: np.random.Generator,
        device: torch.device | str,
        loss: Loss = CROSS_ENTROPY,
    ) -> Estimate:
        """The estimate from noisy counts of right and wrong predictions; it is a function of these counts alone."""
        if data.holdout is None:
            raise ValueError("Expected split.holdout=None to be the held-out private records.")
        metric, std = self.measured, self.count_noise_std
        if metric is not None:
            counts = count_units_in_metric_cells(model, data.holdout, device, metric, rng)
            return metric.estimate(add_gaussian_noise_on_lattice(counts, std, rng, FINE), std)
        counts = count_right_and_wrong_units(model, data.holdout, device, rng, loss)
        right, wrong = map(float, add_gaussian_noise_on_lattice(counts, std, rng, FINE))
        return noisy_accuracy(right, wrong, std)


@dataclass(frozen=True, kw_only=True)
class PublicTest(_MetricScore):
    """The exact accuracy on a test set that was declared public: free, and no guarantee covers the set.

    If `every` is a number, the accuracy is also measured every `every` steps, for a learning curve.
    """

    reads = "test"

    def __post_init__(self) -> None:
        if self.every is not None:
            positive_int("score.every", self.every)
        _ = self.measured

    @property
    def statement(self) -> str:
        """States that the test set is public and exempt from the charge."""
        name = _capitalized_metric_name(self.measured)
        return f"{name} on a test set declared public: exact, not charged, and no guarantee covers its records."

    def event(self, adjacency: Adjacency) -> None:
        """None: no private record is read."""
        return

    def train_records(self, records: int, adjacency: Adjacency) -> int:
        """All records."""
        positive_int("records", records)
        return records

    def check(self, test_records: int, *, public: bool) -> None:
        """Refuse a data set without public test records."""
        if test_records < 1:
            raise ValueError(
                f"Expected test_records={test_records} >= 1: this data set has no public test set; use score=private, "
                "or score=training with dataset.public=true."
            )

    def split(self, private: Records, test: Records | None, adjacency: Adjacency) -> Split:
        """The split that trains on all private records."""
        from dpsweep.trainers.data.split import Split

        return Split(train=private, test=test)

    def measure(
        self,
        model: nn.Module,
        data: Split,
        rng: np.random.Generator,
        device: torch.device | str,
        loss: Loss = CROSS_ENTROPY,
    ) -> Estimate:
        """Counts right predictions; draws nothing from `rng`."""
        if data.test is None or len(data.test) == 0:
            raise ValueError("Expected split.test=None to be public test records; use score=private.")
        return exact_estimate(model, data.test, device, loss, self.measured)


@dataclass(frozen=True, kw_only=True)
class Unscored(PublicTest):
    """No score: a card tells the metric of the model, so that all records of a final run train it."""

    is_measured: ClassVar[bool] = False

    @property
    def statement(self) -> str:
        """States that there is none."""
        return "No record is held out for a score of this run: a card tells how good its model is."

    def check(self, test_records: int, *, public: bool) -> None:
        """Accept every data set."""


@dataclass(frozen=True, kw_only=True)
class OnTraining(PublicTest):
    """The exact accuracy on the training records themselves, which must be declared public: free."""

    reads = "train"

    @property
    def statement(self) -> str:
        """States that the training records are public, and that the score is biased upwards."""
        name = _capitalized_metric_name(self.measured)
        return f"{name} on the training records, declared public: exact, not charged, and higher than on new records."

    def check(self, test_records: int, *, public: bool) -> None:
        """Refuse private training records."""
        if not public:
            raise ValueError(
                "Expected dataset.public=true with score=training: exact scores of private records have no price."
            )

    def measure(
        self,
        model: nn.Module,
        data: Split,
        rng: np.random.Generator,
        device: torch.device | str,
        loss: Loss = CROSS_ENTROPY,
    ) -> Estimate:
        """Counts right predictions; draws nothing from `rng`."""
        return exact_estimate(model, data.train, device, loss, self.measured)


def exact_estimate(
    model: nn.Module, records: Records, device: torch.device | str, loss: Loss, metric: Metric | None
) -> Estimate:
    """The exact estimate on records; each record counts alone, even if units have several records.

    Only for public records.
    """
    if metric is not None:
        counts = count_units_in_metric_cells(model, replace(records, units=None), device, metric, None)
        return metric.estimate(counts, 0.0)
    right = quality_per_record(model, records, device, loss)
    return accuracy_with_wilson_interval(float(right.sum()), len(right))


def _capitalized_metric_name(metric: Metric | None) -> str:
    """The metric's name with a capital letter, to begin a sentence."""
    label = ACCURACY if metric is None else metric.label
    return label[0].upper() + label[1:]
