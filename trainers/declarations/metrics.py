"""Metrics besides accuracy: each maps a record to a cell of a table, and estimates a number from the noisy table.

A record adds 1 to exactly one cell; a unit of several records adds their shares, which sum up to 1. So adding or
removing a unit changes the table by at most 1 in L2 norm, and replacing a record changes it by at most the square root
of 2. The pair of counts of right and wrong predictions has the same sensitivities, so the same noise on every cell
costs the same. An estimate reads the noisy table alone: it takes even the number of records, in total and per class,
from this table.

To add a metric: a frozen dataclass here, and its name in accounting/stored_names/tags.toml. A metric imports no torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from dpsweep.accounting.stored_names.tags import FAMILY_OF, class_of_tag, tags_of_family_text
from dpsweep.trainers.declarations.covering_intervals import auroc_interval, interval_of_mean_of_ratios
from dpsweep.trainers.declarations.estimates import Estimate, Ratios, binned_auroc, mean_of_ratios

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

ACCURACY = "accuracy"
"""The name of the share of right predictions (for other losses, of the mean quality); it needs no table."""

POSITIVE, BINS = 1, 20
"""The default positive class and the default number of bins."""


LOG_ODDS = 6.0
"""The largest log-odds that bins tell apart: probabilities from 1 / 404 to 403 / 404."""

SENSITIVITY, SPECIFICITY = "sensitivity", "specificity"


class Metric(Protocol):
    """A number in [0, 1] computed from a table of counts, larger is better, for data sets with classes.

    *Guarantee*: the cell of a record is a function of its own outputs and target alone.
    """

    label: ClassVar[str]

    def check_class_count(self, classes: int) -> None:
        """Raises ValueError if this metric is not defined for `classes` classes (2 or more)."""

    def number_of_cells(self, classes: int) -> int:
        """The number of cells of the table: public, independent of the records."""

    def cell_indices(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The cell [n] of each record, of outputs [n, classes] as logits and targets [n]."""

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The metric and its 95 % interval from counts [cells], each with Gaussian noise of this deviation."""

    def intervals_at_level(
        self, counts: NDArray[np.float64], noise_std: float, level: float, *, whole_units: bool
    ) -> Mapping[str, tuple[float, float]]:
        """Intervals that each miss with probability at most `level`, for the metric and for `Estimate.also`, by label.

        With `whole_units` a unit adds 1 to one cell, otherwise it adds fractions that sum to 1.
        """

    def likely_counts(self, sizes: Sequence[float], share: float) -> tuple[float, ...]:
        """The counts [cells] of classes of these sizes [classes], where the metric has about the value `share`."""


OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("acc", "accuracy_score", "top1", "error", "error_rate"), ACCURACY),
    **dict.fromkeys(("auc", "roc_auc", "rocauc", "roc_auc_score", "c_statistic"), "auroc"),
    **dict.fromkeys(("bacc", "balanced_acc", "balanced_accuracy_score", "macro_recall"), "balanced_accuracy"),
    **dict.fromkeys(("f1_score", "f1score", "f_score", "f_measure", "dice"), "f1"),
    **dict.fromkeys(("recall", "tpr", "true_positive_rate", "hit_rate"), "sensitivity"),
    **dict.fromkeys(("tnr", "true_negative_rate", "selectivity"), "specificity"),
}
"""Our metric by another tool's name for it."""


def metric_of(name: object, *, positive: object = POSITIVE, bins: object = BINS) -> Metric | None:
    """The metric of this name with its fields; None for the accuracy. Raises ValueError for an unknown name."""
    settings = {"positive": (positive, POSITIVE), "bins": (bins, BINS)}
    for key, (value, _) in settings.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"Expected score.{key}={value!r} to be an integer >= 0.")
    if name != ACCURACY and (not isinstance(name, str) or FAMILY_OF.get(name) != "metric"):
        if ours := OTHER_NAMES.get(str(name).lower()):
            raise ValueError(f"Expected score.metric={name} in dpsweep's words: score.metric={ours}.")
        raise ValueError(f"Expected score.metric={name} to be one of {ACCURACY}, {tags_of_family_text('metric')}.")
    kind = None if name == ACCURACY else class_of_tag(str(name), "metric")
    names = set() if kind is None else {field.name for field in fields(kind)}
    for key, (value, default) in settings.items():
        if key not in names and value != default:
            raise ValueError(f"Expected score.{key}={value} to be left out with score.metric={name}.")
    if kind is None:
        return None
    metric: Metric = kind(**{key: value for key, (value, _) in settings.items() if key in names})
    return metric


class MeanOfRatios(ABC):
    """A metric that is a mean of ratios of cells, and further ones of the same table."""

    label: ClassVar[str]

    @abstractmethod
    def ratios_by_label(self, cells: int) -> Mapping[str, Ratios]:
        """The ratios of each metric that a table of so many cells gives, this metric first."""

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The mean of the ratios; `also` has the further metrics."""
        own, *others = (
            (label, mean_of_ratios(counts, ratios, noise_std))
            for label, ratios in self.ratios_by_label(len(counts)).items()
        )
        return replace(own[1], also=dict(others))

    def intervals_at_level(
        self, counts: NDArray[np.float64], noise_std: float, level: float, *, whole_units: bool
    ) -> Mapping[str, tuple[float, float]]:
        """Each metric by itself."""
        return {
            label: interval_of_mean_of_ratios(counts, ratios, noise_std, level, whole_units=whole_units)
            for label, ratios in self.ratios_by_label(len(counts)).items()
        }


@dataclass(frozen=True, kw_only=True)
class BalancedAccuracy(MeanOfRatios):
    """The mean recall: the mean over all classes of the share of a class's records that are predicted as that class.

    For two classes it is the mean of sensitivity and specificity, which the same counts give too.
    """

    label: ClassVar[str] = "balanced accuracy"

    def check_class_count(self, classes: int) -> None:
        """Accept any number of classes."""

    def number_of_cells(self, classes: int) -> int:
        """Two cells for each class: wrong and right predictions."""
        return 2 * classes

    def cell_indices(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cell 2 * target for a wrong prediction, the next cell for a right one."""
        return 2 * targets + (outputs.argmax(dim=1) == targets)

    def likely_counts(self, sizes: Sequence[float], share: float) -> tuple[float, ...]:
        """The same share of each class right."""
        return tuple(count for size in sizes for count in (size * (1 - share), size * share))

    def ratios_by_label(self, cells: int) -> Mapping[str, Ratios]:
        """The mean recall, and for two classes each recall."""
        recalls = {self.label: _recall_ratios(np.arange(0, cells, 2), np.arange(1, cells, 2))}
        if cells != 4:
            return recalls
        return recalls | {SENSITIVITY: _recall_ratios([2], [3]), SPECIFICITY: _recall_ratios([0], [1])}


class _ConfusionTable(MeanOfRatios):
    """The confusion table of a metric, stored by rows: a row per true class, a column per predicted class."""

    def number_of_cells(self, classes: int) -> int:
        """The confusion table."""
        return classes**2

    def cell_indices(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Row by true class, column by predicted class."""
        return outputs.shape[1] * targets + outputs.argmax(dim=1)

    def likely_counts(self, sizes: Sequence[float], share: float) -> tuple[float, ...]:
        """Errors spread evenly over the other classes."""
        own = np.asarray(sizes, dtype=float)
        cells = np.repeat(own[:, None] * (1 - share) / (len(own) - 1), len(own), axis=1)
        np.fill_diagonal(cells, own * share)
        return tuple(map(float, cells.ravel()))


@dataclass(frozen=True, kw_only=True)
class _BinaryRecall(_ConfusionTable):
    """The fields and checks of a recall of two classes."""

    positive: int = POSITIVE

    def check_class_count(self, classes: int) -> None:
        """Two classes."""
        _check_binary_positive_class(self.label, self.positive, classes)


@dataclass(frozen=True, kw_only=True)
class F1(_ConfusionTable):
    """2 TP / (2 TP + FP + FN) of the positive class of two classes; for more classes, the mean over all classes."""

    label: ClassVar[str] = "F1"
    positive: int = POSITIVE

    def check_class_count(self, classes: int) -> None:
        """Refuse a positive class other than 0 or 1, or any choice of it with more than two classes."""
        if classes > 2 and self.positive != POSITIVE:
            raise ValueError(
                f"Expected score.positive={self.positive} to be left out with dataset.classes={classes}: "
                "F1 is then the mean over all classes."
            )
        _check_binary_positive_class("f1", self.positive, min(classes, 2))

    def ratios_by_label(self, cells: int) -> Mapping[str, Ratios]:
        """True positives have weight 2; an error is a false negative of one class and a false positive of another."""
        classes = round(cells**0.5)
        true, predicted = np.divmod(np.arange(cells), classes)
        right = true == predicted
        ratio = np.concatenate([true[right], true[~right], predicted[~right]])
        cell = np.concatenate([np.flatnonzero(part) for part in (right, ~right, ~right)])
        if classes == 2:
            positive = ratio == self.positive
            ratio, cell = np.zeros(int(positive.sum()), dtype=np.int64), cell[positive]
        numerator, denominator = np.where(right[cell], 2.0, 0.0), np.where(right[cell], 2.0, 1.0)
        own = {self.label: Ratios(ratio=ratio, cell=cell, numerator=numerator, denominator=denominator)}
        return own | _binary_recalls(self.positive) if classes == 2 else own


@dataclass(frozen=True, kw_only=True)
class Sensitivity(_BinaryRecall):
    """The share of the positive records that are predicted as positive, for two classes."""

    label: ClassVar[str] = SENSITIVITY

    def ratios_by_label(self, cells: int) -> Mapping[str, Ratios]:
        """The recall of the positive class, and the specificity."""
        return _binary_recalls(self.positive)


@dataclass(frozen=True, kw_only=True)
class Specificity(_BinaryRecall):
    """The share of the negative records that are predicted as negative, for two classes."""

    label: ClassVar[str] = SPECIFICITY

    def ratios_by_label(self, cells: int) -> Mapping[str, Ratios]:
        """The recall of the negative class, and the sensitivity."""
        return dict(reversed(_binary_recalls(self.positive).items()))


@dataclass(frozen=True, kw_only=True)
class Auroc:
    """The area under the ROC curve of the positive class's log-odds, in bins of equal width between public ends.

    A model of a rare class gives nearly all records a small probability: bins of equal width of the probability would
    hold all of them in one, where nothing is known of their order.
    """

    label: ClassVar[str] = "AUROC"
    positive: int = POSITIVE
    bins: int = BINS

    def __post_init__(self) -> None:
        if self.bins < 2:
            raise ValueError(f"Expected score.bins={self.bins} >= 2.")

    def check_class_count(self, classes: int) -> None:
        """Two classes."""
        _check_binary_positive_class("auroc", self.positive, classes)

    def number_of_cells(self, classes: int) -> int:
        """The number of bins of both classes together."""
        return 2 * self.bins

    def cell_indices(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The bins of the negative class, then those of the positive class; NaN falls into the lowest bin."""
        log_odds = outputs.double()[:, self.positive] - outputs.double()[:, 1 - self.positive]
        finite = log_odds.nan_to_num(nan=-LOG_ODDS).clamp(-LOG_ODDS, LOG_ODDS)
        place = ((finite + LOG_ODDS) / (2 * LOG_ODDS) * self.bins).long().clamp(max=self.bins - 1)
        return place + self.bins * (targets == self.positive)

    def likely_counts(self, sizes: Sequence[float], share: float) -> tuple[float, ...]:
        """Log-odds of a model that says true probabilities: normal, with means apart by their variance.

        *Source*: the area is Phi(d / sqrt(2)) where the means are d standard deviations apart.
        """
        std = math.sqrt(2) * float(ndtri(min(max(share, 0.501), 0.999)))
        inner = ndtr((np.linspace(-LOG_ODDS, LOG_ODDS, self.bins + 1)[1:-1] + std**2 / 2) / std)
        negatives = np.diff(np.concatenate([[0.0], inner, [1.0]]))
        counts = (sizes[1 - self.positive] * negatives, sizes[self.positive] * negatives[::-1])
        return tuple(map(float, np.concatenate(counts)))

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The trapezoidal area over the bins."""
        return binned_auroc(counts[: self.bins], counts[self.bins :], noise_std)

    def intervals_at_level(
        self, counts: NDArray[np.float64], noise_std: float, level: float, *, whole_units: bool
    ) -> Mapping[str, tuple[float, float]]:
        """The area; its tail holds for units with fractions too."""
        return {self.label: auroc_interval(counts[: self.bins], counts[self.bins :], noise_std, level)}


def _check_binary_positive_class(name: str, positive: int, classes: int) -> None:
    if classes != 2:
        raise ValueError(
            f"Expected dataset.classes={classes} == 2 with score.metric={name}; use balanced_accuracy or f1."
        )
    if positive not in (0, 1):
        raise ValueError(f"Expected score.positive={positive} to be 0 or 1 with score.metric={name}.")


def _recall_ratios(wrong: ArrayLike, right: ArrayLike) -> Ratios:
    """The share of each class that is predicted rightly, from its cell of wrong and its cell of right predictions."""
    cells = np.stack([np.asarray(wrong), np.asarray(right)], axis=1)
    classes, is_right = np.divmod(np.arange(cells.size), 2)
    return Ratios(ratio=classes, cell=cells.ravel(), numerator=is_right * 1.0, denominator=np.ones(cells.size))


def _binary_recalls(positive: int) -> dict[str, Ratios]:
    """Sensitivity and specificity from the confusion table of two classes."""
    recalls = [_recall_ratios([row + 1], [3 * row]) for row in (positive, 1 - positive)]
    return dict(zip((SENSITIVITY, SPECIFICITY), recalls, strict=True))
