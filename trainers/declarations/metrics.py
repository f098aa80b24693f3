"""Metrics besides accuracy: each says to which cell of a table a record adds, and which number follows from the table.

A record adds 1 to exactly one cell, and a unit of several records adds their shares, which sum up to 1. So adding or
removing a unit changes the table by at most 1 in norm, as it does the pair of counts of right and wrong answers, and
replacing a record changes both by at most the square root of 2: the same noise on every cell costs the same. An
estimate reads the noisy table alone; how many records there are, also of a class, is known through it alone.

To add a metric: a frozen dataclass here, and its name in accounting/names/tags.py. A metric imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from dpsweep.accounting.names.tags import FAMILY_OF, own_class, tags_of
from dpsweep.trainers.declarations.estimates import Estimate, Ratios, binned_auroc, mean_of_ratios

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

ACCURACY = "accuracy"
"""The name of the share of right answers, or of another loss's mean quality, which has no table."""

POSITIVE, BINS = 1, 20
"""The positive class, and the number of bins, where nobody says otherwise."""


SENSITIVITY, SPECIFICITY = "sensitivity", "specificity"


class Metric(Protocol):
    """A number in [0, 1] of a table of counts, the larger the better, for data sets with classes.

    *Guarantee*: `cells` are a function of each record's own outputs and target alone.
    """

    label: ClassVar[str]

    def check(self, classes: int) -> None:
        """Raises ValueError where a data set with so many classes, 2 or more, has no such number."""
        ...

    def size(self, classes: int) -> int:
        """How many cells the table has: public, whatever the records are."""
        ...

    def cells(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The cell [n] of each record, of outputs [n, classes] as logits and targets [n]."""
        ...

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The number and its interval, of counts [cells] with Gaussian noise of this standard deviation each."""
        ...


def metric_of(name: object, *, positive: object = POSITIVE, bins: object = BINS) -> Metric | None:
    """The metric of this name with its fields; None for the accuracy. Raises ValueError where there is none."""
    given = {"positive": (positive, POSITIVE), "bins": (bins, BINS)}
    for key, (value, _) in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"Expected score.{key}={value!r} to be an integer >= 0.")
    if name != ACCURACY and (not isinstance(name, str) or FAMILY_OF.get(name) != "metric"):
        raise ValueError(f"Expected score.metric={name} to be one of {ACCURACY}, {tags_of('metric')}.")
    kind = None if name == ACCURACY else own_class(str(name), "metric")
    known = set() if kind is None else {field.name for field in fields(kind)}
    for key, (value, default) in given.items():
        if key not in known and value != default:
            raise ValueError(f"Expected score.{key}={value} to be left out with score.metric={name}.")
    if kind is None:
        return None
    metric: Metric = kind(**{key: value for key, (value, _) in given.items() if key in known})
    return metric


@dataclass(frozen=True, kw_only=True)
class BalancedAccuracy:
    """The mean over all classes of the share of a class's records that are predicted as that class.

    Of two classes the same counts tell sensitivity and specificity, whose mean it is.
    """

    label: ClassVar[str] = "balanced accuracy"

    def check(self, classes: int) -> None:
        """Any number of classes."""

    def size(self, classes: int) -> int:
        """Wrong and right predictions of each class."""
        return 2 * classes

    def cells(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Two cells for each true class: wrong and right."""
        return 2 * targets + (outputs.argmax(dim=1) == targets)

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The mean recall."""
        cell = np.arange(len(counts))
        right = (cell % 2).astype(np.float64)
        ratios = Ratios(ratio=cell // 2, cell=cell, over=right, under=np.ones(len(cell)))
        estimate = mean_of_ratios(counts, ratios, noise_std)
        return _with_recalls(estimate, counts[[1, 0, 2, 3]], POSITIVE, noise_std) if len(counts) == 4 else estimate


@dataclass(frozen=True, kw_only=True)
class F1:
    """2 TP / (2 TP + FP + FN) of the positive class of two; of more classes, its mean over all of them."""

    label: ClassVar[str] = "F1"
    positive: int = POSITIVE

    def check(self, classes: int) -> None:
        """The positive class must be one of two, or left out."""
        if classes > 2 and self.positive != POSITIVE:
            raise ValueError(
                f"Expected score.positive={self.positive} to be left out with dataset.classes={classes}: "
                "F1 is then the mean over all classes."
            )
        _require_one_of_two("f1", self.positive, min(classes, 2))

    def size(self, classes: int) -> int:
        """The confusion table."""
        return classes**2

    def cells(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Row by true class, column by predicted class."""
        return _confused(outputs, targets)

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """A true positive counts twice in both parts; a wrong record is missed by one class and false in another."""
        classes = round(len(counts) ** 0.5)
        true, predicted = np.divmod(np.arange(len(counts)), classes)
        right = true == predicted
        ratio = np.concatenate([true[right], true[~right], predicted[~right]])
        cell = np.concatenate([np.flatnonzero(part) for part in (right, ~right, ~right)])
        if classes == 2:
            own = ratio == self.positive
            ratio, cell = np.zeros(int(own.sum()), dtype=np.int64), cell[own]
        over = np.where(right[cell], 2.0, 0.0)
        under = np.where(right[cell], 2.0, 1.0)
        estimate = mean_of_ratios(counts, Ratios(ratio=ratio, cell=cell, over=over, under=under), noise_std)
        return _with_recalls(estimate, counts, self.positive, noise_std) if classes == 2 else estimate


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The share of the positive records that are predicted as positive, for two classes."""

    label: ClassVar[str] = SENSITIVITY
    positive: int = POSITIVE

    def check(self, classes: int) -> None:
        """Two classes."""
        _require_one_of_two("sensitivity", self.positive, classes)

    def size(self, classes: int) -> int:
        """The confusion table."""
        return classes**2

    def cells(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Row by true class, column by predicted class."""
        return _confused(outputs, targets)

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The share of the positive row, and beside it the specificity."""
        return replace(
            _recall(counts, self.positive, noise_std), also={SPECIFICITY: _recall(counts, 1 - self.positive, noise_std)}
        )


@dataclass(frozen=True, kw_only=True)
class Specificity:
    """The share of the negative records that are predicted as negative, for two classes."""

    label: ClassVar[str] = SPECIFICITY
    positive: int = POSITIVE

    def check(self, classes: int) -> None:
        """Two classes."""
        _require_one_of_two("specificity", self.positive, classes)

    def size(self, classes: int) -> int:
        """The confusion table."""
        return classes**2

    def cells(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Row by true class, column by predicted class."""
        return _confused(outputs, targets)

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The share of the negative row, and beside it the sensitivity."""
        return replace(
            _recall(counts, 1 - self.positive, noise_std), also={SENSITIVITY: _recall(counts, self.positive, noise_std)}
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

    def check(self, classes: int) -> None:
        """Two classes."""
        _require_one_of_two("auroc", self.positive, classes)

    def size(self, classes: int) -> int:
        """The bins of both classes."""
        return 2 * self.bins

    def cells(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The bins of the negative class, then those of the positive class; what is no number is in the lowest bin."""
        probability = outputs.double().softmax(dim=1)[:, self.positive].nan_to_num(nan=0.0)
        place = (probability * self.bins).long().clamp(max=self.bins - 1)
        return place + self.bins * (targets == self.positive)

    def estimate(self, counts: NDArray[np.float64], noise_std: float) -> Estimate:
        """The trapezoid over the bins."""
        return binned_auroc(counts[: self.bins], counts[self.bins :], noise_std)


def _require_one_of_two(name: str, positive: int, classes: int) -> None:
    if classes != 2:
        raise ValueError(
            f"Expected dataset.classes={classes} == 2 with score.metric={name}; use balanced_accuracy or f1."
        )
    if positive not in (0, 1):
        raise ValueError(f"Expected score.positive={positive} to be 0 or 1 with score.metric={name}.")


def _confused(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cell of the confusion table, row by row: true classes down, predicted ones across."""
    return outputs.shape[1] * targets + outputs.argmax(dim=1)


def _with_recalls(estimate: Estimate, confusion: NDArray[np.float64], positive: int, noise_std: float) -> Estimate:
    """The same, with what the confusion table of two classes tells of both."""
    recalls = {
        SENSITIVITY: _recall(confusion, positive, noise_std),
        SPECIFICITY: _recall(confusion, 1 - positive, noise_std),
    }
    return replace(estimate, also=recalls)


def _recall(counts: NDArray[np.float64], row: int, noise_std: float) -> Estimate:
    """The share of one class of two that is predicted as that class."""
    cell = np.array([2 * row, 2 * row + 1])
    right = (cell == 3 * row).astype(np.float64)
    ratios = Ratios(ratio=np.zeros(2, dtype=np.int64), cell=cell, over=right, under=np.ones(2))
    return mean_of_ratios(counts, ratios, noise_std)
