"""The card of a model: what two noisy tables of counts on records that chose nothing tell of it.

The first table has the right and the wrong units, and nothing else enters the number that is claimed for the accuracy.
The second one has details: classes by bins of the log-odds for two classes, the confusion table for up to ten, right
and wrong by class for more, errors for a regression, and right and wrong by label where a record has several. A unit
adds a vector of norm at most 1 to each table. Each
number of a card has an interval that holds by itself; a number that a table does not give is left out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.records.card import SAME_ANSWER, CardNumber
from dpsweep.trainers.declarations.covering_intervals import (
    NoisyCount,
    auroc_interval,
    average_precision_interval,
    interval_of_mean_of_ratios,
    share_interval,
)
from dpsweep.trainers.declarations.estimates import Ratios, area_under_precision, binned_auroc, mean_of_ratios
from dpsweep.trainers.declarations.losses import BinaryCrossEntropy, Loss, NumberLoss
from dpsweep.trainers.declarations.metrics import (
    BINS,
    F1,
    LOG_ODDS,
    POSITIVE,
    SENSITIVITY,
    SPECIFICITY,
    Auroc,
    BalancedAccuracy,
    Metric,
)
from dpsweep.trainers.declarations.scores import (
    Score,
    count_right_and_wrong_units,
    count_units_in_metric_cells,
    value_per_record,
)

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from dpsweep.trainers.data.records import Records

MOST_CONFUSED = 10
"""The most classes whose confusion table a card has."""

BALANCED = "balanced_accuracy"
THRESHOLDED = (BALANCED, "f1")
"""The metrics that may choose a decision threshold."""

AVERAGE_PRECISION = "average precision"

CALIBRATED = 5
"""The groups of bins for which a card compares predicted and observed shares."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the counts of a table were read: the noise of each, the level of each interval, and what a unit adds.

    With `whole_units` a unit adds 1 to one cell, otherwise fractions that sum to 1. `target_width` is the width of the
    declared range of the targets, which are scaled to [0, 1]; 1 if they are not scaled.
    """

    std: float
    level: float
    whole_units: bool
    target_width: float = 1.0

    def number_of_ratios(self, label: str, counts: NDArray[np.float64], ratios: Ratios) -> CardNumber:
        """The mean of ratios of cells."""
        low, high = interval_of_mean_of_ratios(counts, ratios, self.std, self.level, whole_units=self.whole_units)
        value = mean_of_ratios(counts, ratios, self.std).value
        return CardNumber(label=label, value=min(max(value, low), high), low=low, high=high)

    def number_of_shares(
        self, label: str, counts: NDArray[np.float64], *classes: tuple[Sequence[int], Sequence[int]]
    ) -> CardNumber:
        """The mean share of right units of some classes, each given by its right and its wrong cells."""
        entries = [
            (place, cell, weight)
            for place, (right, wrong) in enumerate(classes)
            for cells, weight in ((right, 1.0), (wrong, 0.0))
            for cell in cells
        ]
        ratio, cell, numerator = zip(*entries, strict=True)
        return self.number_of_ratios(
            label,
            counts,
            Ratios(
                ratio=np.array(ratio),
                cell=np.array(cell),
                numerator=np.array(numerator),
                denominator=np.ones(len(entries)),
            ),
        )

    def number_of_error(self, loss: NumberLoss, quality: CardNumber) -> CardNumber:
        """The mean error in the target's unit, from the mean quality by this loss."""
        value, low, high = (
            self.target_width * loss.mean_error(share) for share in (quality.value, quality.high, quality.low)
        )
        return CardNumber(label=loss.error_name, value=value, low=low, high=high, in_target_unit=True)


class CardDetails(ABC):
    """The second table of a card, of which adding or removing a unit changes at most 1 in L2 norm."""

    @abstractmethod
    def count(
        self, model: nn.Module, records: Records, device: torch.device | str, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """The table [cells], to which each unit adds a vector of norm at most 1."""

    @abstractmethod
    def numbers(self, counts: NDArray[np.float64], reading: Reading) -> Iterator[CardNumber]:
        """What the noisy table tells."""

    @abstractmethod
    def likely_counts(self, sizes: Sequence[float], share: float) -> tuple[float, ...]:
        """The counts where classes have these sizes [classes], this share of them right, or of the best quality."""

    def cells_by_class(self, cells: int) -> Sequence[Sequence[int]]:
        """The cells of each class, of so many cells; empty where the target is no class."""
        return ()

    def deciding(self, model: nn.Module) -> AbstractContextManager[None]:
        """The model as it decides: by its largest output."""
        return nullcontext()

    def same_answer_number(self, counts: NDArray[np.float64], reading: Reading) -> Iterator[CardNumber]:
        """The share of the most frequent class; its interval holds whichever class that is."""
        classes = self.cells_by_class(len(counts))
        if not classes:
            return
        most = max(classes, key=lambda cells: float(counts[cells].sum()))
        others = [cell for cells in classes if cells is not most for cell in cells]
        each = replace(reading, level=reading.level / len(classes))
        yield each.number_of_shares(SAME_ANSWER, counts, (most, others))


@dataclass(frozen=True, kw_only=True)
class _MetricDetails(CardDetails):
    """The table of a metric."""

    metric: Metric

    def likely_counts(self, sizes: Sequence[float], share: float) -> tuple[float, ...]:
        """Those of the metric."""
        return self.metric.likely_counts(sizes, share)

    def count(
        self, model: nn.Module, records: Records, device: torch.device | str, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """That of the metric."""
        return count_units_in_metric_cells(model, records, device, self.metric, rng)


@dataclass(frozen=True, kw_only=True)
class LogOddsDetails(_MetricDetails):
    """The units of two classes by bins of the log-odds of class `positive`, relative to the threshold that decides.

    `threshold` is the least probability at which the model says `positive`; it moves the middle of the bins.
    """

    metric: Auroc
    threshold: float = 0.5

    @property
    def shift(self) -> float:
        """The log-odds at the threshold."""
        return math.log(self.threshold / (1 - self.threshold))

    def _probability_at_edge(self, edge: int) -> float:
        """The probability of the positive class at the lower edge of the bin with this number."""
        return 1 / (1 + math.exp(LOG_ODDS - self.shift - 2 * LOG_ODDS * edge / self.metric.bins))

    @contextmanager
    def deciding(self, model: nn.Module) -> Iterator[None]:
        """The model with log-odds that are smaller by those at the threshold, so that the larger output decides."""

        def shifted(_: nn.Module, __: object, outputs: Tensor) -> Tensor:
            moved = outputs.clone()
            moved[:, self.metric.positive] -= self.shift
            return moved

        if self.shift == 0:
            yield
            return
        with model.register_forward_hook(shifted):
            yield

    def likely_counts(self, sizes: Sequence[float], share: float) -> tuple[float, ...]:
        """Spread evenly over the bins of either decision."""
        half = self.metric.bins // 2
        negative, positive = sizes[1 - self.metric.positive] / half, sizes[self.metric.positive] / half
        lower, upper = (negative * share, positive * (1 - share)), (negative * (1 - share), positive * share)
        return tuple(count for one in (0, 1) for side in (lower, upper) for count in (side[one],) * half)

    def cells_by_class(self, cells: int) -> Sequence[Sequence[int]]:
        """The bins of the negative class, and those of the positive one."""
        return [range(cells // 2), range(cells // 2, cells)]

    def numbers(self, counts: NDArray[np.float64], reading: Reading) -> Iterator[CardNumber]:
        """What the decision reaches, how well the log-odds order the units, and how far they can be believed."""
        bins, middle = self.metric.bins, self.metric.bins // 2
        no, yes = list(range(bins)), list(range(bins, 2 * bins))
        positives, negatives = (yes[middle:], yes[:middle]), (no[:middle], no[middle:])
        yield reading.number_of_shares(BalancedAccuracy.label, counts, positives, negatives)
        yield reading.number_of_shares(SENSITIVITY, counts, positives)
        yield reading.number_of_shares(SPECIFICITY, counts, negatives)
        cells = np.array([*yes[middle:], *yes[:middle], *no[middle:]])
        right = np.arange(len(cells)) < bins - middle
        weights = Ratios(
            ratio=np.zeros(len(cells), dtype=np.int64),
            cell=cells,
            numerator=np.where(right, 2.0, 0.0),
            denominator=np.where(right, 2.0, 1.0),
        )
        yield reading.number_of_ratios(F1.label, counts, weights)
        low, high = auroc_interval(counts[no], counts[yes], reading.std, reading.level)
        area = binned_auroc(counts[no], counts[yes], reading.std).value
        yield CardNumber(label=Auroc.label, value=min(max(area, low), high), low=low, high=high)
        yield _average_precision(counts[no], counts[yes], reading)
        for group in np.array_split(np.arange(bins), CALIBRATED):
            least, most = (f"{self._probability_at_edge(int(edge)):.1%}" for edge in (group[0], group[-1] + 1))
            predicted = f"{least} to {most}"
            if group[0] == 0:
                predicted = f"less than {most}, or no number,"
            elif group[-1] == bins - 1:
                predicted = f"{least} or more"
            label = f"observed where {predicted} was predicted"
            yield reading.number_of_shares(label, counts, ([yes[one] for one in group], [no[one] for one in group]))


def _average_precision(negatives: NDArray[np.float64], positives: NDArray[np.float64], reading: Reading) -> CardNumber:
    """The average precision from the counts per bin of both classes."""
    low, high = average_precision_interval(
        negatives, positives, reading.std, reading.level, whole_units=reading.whole_units
    )
    n, m = (np.maximum(own[::-1], 0.0) for own in (negatives, positives))
    value = (low + high) / 2
    if n.sum() > 0 and m.sum() > 0:
        fallouts, recalls = (np.append(0.0, np.cumsum(own) / own.sum()) for own in (n, m))
        value = area_under_precision(recalls, fallouts, odds=float(n.sum() / m.sum()))
    return CardNumber(label=AVERAGE_PRECISION, value=min(max(value, low), high), low=low, high=high)


def threshold_with_largest(metric: str, counts: Sequence[float], table: Auroc) -> float:
    """The threshold at which `metric`, one of `THRESHOLDED`, is the largest in a released table of an area.

    It is the probability at an edge of the table's bins. Counts carry noise, so the largest one is an estimate.
    """
    bins = table.bins
    negatives, positives = np.asarray(counts[:bins]), np.asarray(counts[bins:])
    caught, alarms = (np.cumsum(own[::-1])[-2::-1] for own in (positives, negatives))  # at or above each inner edge
    n, m = max(float(negatives.sum()), 1.0), max(float(positives.sum()), 1.0)
    values = caught / m - alarms / n if metric == BALANCED else 2 * caught / np.maximum(caught + alarms + m, 1.0)
    edge = -LOG_ODDS + 2 * LOG_ODDS * (1 + int(values.argmax())) / bins
    return 1 / (1 + math.exp(-edge))


@dataclass(frozen=True, kw_only=True)
class ConfusionDetails(_MetricDetails):
    """The confusion table of several classes."""

    metric: F1

    def cells_by_class(self, cells: int) -> Sequence[Sequence[int]]:
        """The rows."""
        classes = round(cells**0.5)
        return [range(first, first + classes) for first in range(0, cells, classes)]

    def numbers(self, counts: NDArray[np.float64], reading: Reading) -> Iterator[CardNumber]:
        """The mean recall, the mean F1, and the recall of each class."""
        classes = round(len(counts) ** 0.5)
        rows = np.arange(len(counts)).reshape(classes, classes).tolist()
        recalls = [([row[place]], [*row[:place], *row[place + 1 :]]) for place, row in enumerate(rows)]
        yield reading.number_of_shares(BalancedAccuracy.label, counts, *recalls)
        yield reading.number_of_ratios(F1.label, counts, self.metric.ratios_by_label(len(counts))[F1.label])
        for place, recall in enumerate(recalls):
            yield reading.number_of_shares(f"recall of class {place}", counts, recall)


@dataclass(frozen=True, kw_only=True)
class RecallDetails(_MetricDetails):
    """The right and the wrong units of each class."""

    metric: BalancedAccuracy

    def cells_by_class(self, cells: int) -> Sequence[Sequence[int]]:
        """Pairs of cells."""
        return [range(first, first + 2) for first in range(0, cells, 2)]

    def numbers(self, counts: NDArray[np.float64], reading: Reading) -> Iterator[CardNumber]:
        """The mean recall, and the recall of each class."""
        recalls = [([place + 1], [place]) for place in range(0, len(counts), 2)]
        yield reading.number_of_shares(BalancedAccuracy.label, counts, *recalls)
        for place, recall in enumerate(recalls):
            yield reading.number_of_shares(f"recall of class {place}", counts, recall)


@dataclass(frozen=True, kw_only=True)
class ErrorDetails(CardDetails):
    """The other error of a regression: absolute errors where the score is made of squared ones, and the reverse."""

    loss: NumberLoss

    def likely_counts(self, sizes: Sequence[float], share: float) -> tuple[float, ...]:
        """That share of the best."""
        return sum(sizes) * share, sum(sizes) * (1 - share)

    def count(
        self, model: nn.Module, records: Records, device: torch.device | str, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """The sum of 1 - error / largest error, and the sum of error / largest error."""
        return count_right_and_wrong_units(model, records, device, rng, self.loss.other_error)

    def numbers(self, counts: NDArray[np.float64], reading: Reading) -> Iterator[CardNumber]:
        """The mean error, in the target's unit."""
        yield reading.number_of_error(self.loss.other_error, reading.number_of_shares("", counts, ([0], [1])))


@dataclass(frozen=True, kw_only=True)
class LabelDetails(CardDetails):
    """The right and the wrong units of each of a record's several labels, each scaled by 1 / sqrt(labels).

    *Guarantee*: a record adds 1 / sqrt(k) to one cell of each of k pairs, a vector of norm 1; a unit adds the mean of
    such vectors. Replacing a record moves k such numbers to other cells, a difference of norm at most sqrt(2). So the
    table has the sensitivities of one to which a unit adds numbers that sum to 1.
    """

    loss: BinaryCrossEntropy
    names: tuple[str, ...]

    def likely_counts(self, sizes: Sequence[float], share: float) -> tuple[float, ...]:
        """The same pair for each label."""
        units = sum(sizes) / self._scale
        return (units * share, units * (1 - share)) * len(self.names)

    def count(
        self, model: nn.Module, records: Records, device: torch.device | str, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Pairs of cells, right and wrong."""
        cells = []
        for place in range(len(self.names)):

            def is_right(outputs: Tensor, targets: Tensor, place: int = place) -> Tensor:
                return self.loss.right_labels(outputs, targets)[:, place].to(outputs.dtype)

            shares = records.mean_quality_of_each_unit(value_per_record(model, records, device, is_right, rng))
            cells += [shares.sum(), (1 - shares).sum()]
        return np.array(cells) / self._scale

    def numbers(self, counts: NDArray[np.float64], reading: Reading) -> Iterator[CardNumber]:
        """The accuracy of each label."""
        unscaled, own = counts * self._scale, replace(reading, std=reading.std * self._scale)
        for place, name in enumerate(self.names):
            yield own.number_of_shares(f"accuracy of {name}", unscaled, ([2 * place], [2 * place + 1]))

    @property
    def _scale(self) -> float:
        return math.sqrt(len(self.names))


def details_of_card(
    loss: Loss, score: Score, classes: int, threshold: float | None = None, label_names: tuple[str, ...] = ()
) -> CardDetails | None:
    """The second table of a card for such models, None if there is none: a text has many targets, and no class.

    `threshold` decides between two classes, None for the more likely one. `label_names` name the labels of records that
    have several.
    """
    if isinstance(loss, BinaryCrossEntropy):
        return LabelDetails(loss=loss, names=label_names or tuple(f"label {place}" for place in range(classes)))
    if isinstance(loss, NumberLoss):
        return ErrorDetails(loss=loss)
    if loss.per_position or loss.labels != "int64" or classes < 2:
        return None
    if classes == 2:
        positive = getattr(score.measured, "positive", POSITIVE)
        return LogOddsDetails(metric=Auroc(positive=positive, bins=BINS), threshold=threshold or 0.5)
    if classes <= MOST_CONFUSED or score.metric == "f1":
        return ConfusionDetails(metric=F1())
    return RecallDetails(metric=BalancedAccuracy())


def number_of_tables(details: CardDetails | None) -> int:
    """The number of tables that share the card's budget."""
    return 1 if details is None else 2


def number_of_card_counts(details: CardDetails | None, classes: int) -> int:
    """The number of counts of both tables."""
    return 2 + (0 if details is None else len(details.likely_counts((1,) * classes, 1.0)))


def count_card_cells(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    loss: Loss,
    details: CardDetails | None,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """The counts of both tables [2 + cells], without noise; `rng` draws the records' places in passes.

    Guarantee: a unit changes each table by at most 1 in L2 norm, since it changes no other unit's predictions.
    """
    if details is None:
        return count_right_and_wrong_units(model, records, device, rng, loss)
    with details.deciding(model):
        pair = count_right_and_wrong_units(model, records, device, rng, loss)
        return np.concatenate([pair, details.count(model, records, device, rng)])


def numbers_of_card(
    counts: Sequence[float], loss: Loss, score: Score, details: CardDetails | None, reading: Reading
) -> tuple[CardNumber, ...]:
    """What a card tells, the score's metric first; for a regression also its error in the target's unit."""
    right, wrong = (NoisyCount(value=count, std=reading.std) for count in counts[:2])
    low, high = share_interval(right, wrong, reading.level, whole_units=reading.whole_units)
    total = right.value + wrong.value
    value = min(max(right.value / total, low), high) if total > 0 else (low + high) / 2
    numbers = [CardNumber(label=loss.quality_name, value=value, low=low, high=high)]
    if isinstance(loss, NumberLoss):
        numbers.append(reading.number_of_error(loss, numbers[0]))
    if details is not None:
        table = np.asarray(counts[2:])
        numbers += [*details.same_answer_number(table, reading), *details.numbers(table, reading)]
    first = loss.quality_name if score.measured is None else score.measured.label
    return tuple(sorted(numbers, key=lambda number: number.label != first))
