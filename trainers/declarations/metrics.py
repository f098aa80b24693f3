"""Metrics besides accuracy: each maps a record to a cell of a table, and estimates a number from the noisy table.

A record adds 1 to exactly one cell; a unit of several records adds their shares, which sum up to 1. So adding or
removing a unit changes the table by at most 1 in L2 norm, and replacing a record changes it by at most the square root
of 2. The pair of counts of right and wrong predictions has the same sensitivities, so the same noise on every cell
costs the same. An estimate reads the noisy table alone: it takes even the number of records, in total and per class,
from this table.

To add a metric: a frozen dataclass here, and its name in accounting/stored_names/tags.py. A metric imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from dpsweep.accounting.stored_names.tags import FAMILY_OF, class_of_tag, tags_of_family_text
from dpsweep.trainers.declarations.estimates import Estimate, Ratios, binned_auroc, mean_of_ratios

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

ACCURACY = "accuracy"
"""The name of the share of right predictions (for other losses, of the mean quality); it needs no table."""

POSITIVE, BINS = 1, 20
"""The default positive class and the default number of bins."""


SENSITIVITY, SPECIFICITY = "sensitivity", "specificity"


class Metric(Protocol):
    """A number in [0, 1] computed from a table of counts, larger is better, for data sets with classes.

    *Guarantee*: the cell of a record is a function of its own outputs and target alone.
    """

    label: ClassVar[str]

    def check_class_count(self, classes: int) -> None:
        """Raises ValueError if this metric is not defined for `classes` classes (2 or more)."""
        ...

    def number_of_cells(self, classes: int) -> int:
        """The number of cells of the table: public, independent of the records."""
        ...

    def cell_indices(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The cell [n] of each record, of outputs [n, classes] as logits and targets [n]."""
        ...

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The metric and its interval from counts [cells], each with Gaussian noise of this standard deviation."""
        ...


def metric_of(name: object, *, positive: object = POSITIVE, bins: object = BINS) -> Metric | None:
    """The metric of this name with its fields; None for the accuracy. Raises ValueError for an unknown name."""
    settings = {"positive": (positive, POSITIVE), "bins": (bins, BINS)}
    for key, (value, _) in settings.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"Expected score.{key}={value!r} to be an integer >= 0.")
    if name != ACCURACY and (not isinstance(name, str) or FAMILY_OF.get(name) != "metric"):
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


@dataclass(frozen=True, kw_only=True)
class BalancedAccuracy:
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

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The mean recall."""
        cell = np.arange(len(counts))
        right = (cell % 2).astype(np.float64)
        ratios = Ratios(ratio=cell // 2, cell=cell, numerator=right, denominator=np.ones(len(cell)))
        estimate = mean_of_ratios(counts, ratios, noise_std)
        return (
            _estimate_with_sensitivity_specificity(estimate, counts[[1, 0, 2, 3]], POSITIVE, noise_std)
            if len(counts) == 4
            else estimate
        )


class _ConfusionTable:
    """The confusion table of a metric, stored by rows: a row per true class, a column per predicted class."""

    def number_of_cells(self, classes: int) -> int:
        """The confusion table."""
        return classes**2

    def cell_indices(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Row by true class, column by predicted class."""
        return outputs.shape[1] * targets + outputs.argmax(dim=1)


@dataclass(frozen=True, kw_only=True)
class _BinaryRecall(_ConfusionTable):
    """The fields and checks of a recall of two classes."""

    label: ClassVar[str]
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

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """True positives have weight 2; an error is a false negative of one class and a false positive of another."""
        classes = round(len(counts) ** 0.5)
        true, predicted = np.divmod(np.arange(len(counts)), classes)
        right = true == predicted
        ratio = np.concatenate([true[right], true[~right], predicted[~right]])
        cell = np.concatenate([np.flatnonzero(part) for part in (right, ~right, ~right)])
        if classes == 2:
            positive = ratio == self.positive
            ratio, cell = np.zeros(int(positive.sum()), dtype=np.int64), cell[positive]
        numerator = np.where(right[cell], 2.0, 0.0)
        denominator = np.where(right[cell], 2.0, 1.0)
        ratios = Ratios(ratio=ratio, cell=cell, numerator=numerator, denominator=denominator)
        estimate = mean_of_ratios(counts, ratios, noise_std)
        return (
            _estimate_with_sensitivity_specificity(estimate, counts, self.positive, noise_std)
            if classes == 2
            else estimate
        )


@dataclass(frozen=True, kw_only=True)
class Sensitivity(_BinaryRecall):
    """The share of the positive records that are predicted as positive, for two classes."""

    label: ClassVar[str] = SENSITIVITY

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The recall of the positive class; `also` holds the specificity."""
        return replace(
            _recall_estimate(counts, self.positive, noise_std),
            also={SPECIFICITY: _recall_estimate(counts, 1 - self.positive, noise_std)},
        )


@dataclass(frozen=True, kw_only=True)
class Specificity(_BinaryRecall):
    """The share of the negative records that are predicted as negative, for two classes."""

    label: ClassVar[str] = SPECIFICITY

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The recall of the negative class; `also` holds the sensitivity."""
        return replace(
            _recall_estimate(counts, 1 - self.positive, noise_std),
            also={SENSITIVITY: _recall_estimate(counts, self.positive, noise_std)},
        )


@dataclass(frozen=True, kw_only=True)
class Auroc:
    """The area under the ROC curve of the positive class's softmax probability, in bins of equal width."""

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
        probability = outputs.double().softmax(dim=1)[:, self.positive].nan_to_num(nan=0.0)
        place = (probability * self.bins).long().clamp(max=self.bins - 1)
        return place + self.bins * (targets == self.positive)

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The trapezoidal area over the bins."""
        return binned_auroc(counts[: self.bins], counts[self.bins :], noise_std)


def _check_binary_positive_class(name: str, positive: int, classes: int) -> None:
    if classes != 2:
        raise ValueError(
            f"Expected dataset.classes={classes} == 2 with score.metric={name}; use balanced_accuracy or f1."
        )
    if positive not in (0, 1):
        raise ValueError(f"Expected score.positive={positive} to be 0 or 1 with score.metric={name}.")


def _estimate_with_sensitivity_specificity(
    estimate: Estimate, confusion: NDArray[np.float64], positive: int, noise_std: float
) -> Estimate:
    """The same estimate, with sensitivity and specificity from the confusion table of two classes."""
    recalls = {
        SENSITIVITY: _recall_estimate(confusion, positive, noise_std),
        SPECIFICITY: _recall_estimate(confusion, 1 - positive, noise_std),
    }
    return replace(estimate, also=recalls)


def _recall_estimate(counts: NDArray[np.float64], row: int, noise_std: float) -> Estimate:
    """The share of one class of two that is predicted as that class."""
    cell = np.array([2 * row, 2 * row + 1])
    right = (cell == 3 * row).astype(np.float64)
    ratios = Ratios(ratio=np.zeros(2, dtype=np.int64), cell=cell, numerator=right, denominator=np.ones(2))
    return mean_of_ratios(counts, ratios, noise_std)
