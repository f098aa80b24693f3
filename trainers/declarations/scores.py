"""How a trained model is scored, what the score costs, and how sure it is.

A score of private records is an access to private data and says so by its event; the records it reads are
held out from training, so the two parts are disjoint populations. A score of a public test set costs nothing,
because someone declared that set public. A score is the mean of the records' qualities, each in [0, 1] as the loss has
it, and of classes the accuracy; or where `metric` names another number (`trainers/declarations/metrics.py`), that one.
Each has a 95 % interval that covers the noise and the finite number of records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from dpsweep.accounting.events.build import DpEvent, gaussian
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.numbers import fraction, positive, positive_int
from dpsweep.trainers.declarations.estimates import Estimate, noisy_accuracy, wilson
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY
from dpsweep.trainers.declarations.metrics import ACCURACY, BINS, POSITIVE, Metric, metric_of
from dpsweep.trainers.declarations.score_counts import qualities, right_and_wrong, table
from dpsweep.trainers.noise import add_noise

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.declarations.losses import Loss

Accuracy = Estimate
"""What an estimate was called while every score was an accuracy: scores of a user's own may return it."""


class Score(Protocol):
    """Measures a trained model, and declares beforehand what that costs the records it reads.

    *Guarantee*: `measure` touches private records only through one mechanism whose cost is `event`.
    """

    @property
    def statement(self) -> str:
        """One sentence for the reader of a report: on what records, and with what noise."""
        ...

    def event(self) -> DpEvent | None:
        """One measurement of one trial, or None where no private record is read."""
        ...

    def train_records(self, records: int, adjacency: Adjacency) -> int:
        """The nominal number of private units left to train on, of a nominal `records`.

        Where records are replaced, their number is public, and so is how many are left: that is exact.
        """
        ...

    def check(self, test_records: int, *, public: bool) -> None:
        """Raises ValueError where a data set with so many public test records cannot be scored this way.

        `public` says that all of its records were declared public, and not only those.
        """
        ...

    def split(self, private: Records, test: Records | None, adjacency: Adjacency) -> Split:
        """The records that are trained on, and those that this score reads."""
        ...

    def measure(
        self,
        model: nn.Module,
        data: Split,
        rng: np.random.Generator,
        device: torch.device | str,
        loss: Loss = CROSS_ENTROPY,
    ) -> Estimate:
        """How good the model is on the records that this score reads."""
        ...


def looks_every(score: Score) -> int | None:
    """After how many steps each it is looked at how training goes; None where it is not."""
    return getattr(score, "every", None)


def metric_of_score(score: Score) -> Metric | None:
    """What a score measures besides accuracy; None for the accuracy, and for a class of the user's that names none."""
    return getattr(score, "measured", None)


def noisy_counts(score: Score, classes: int) -> int:
    """How many noisy numbers one measurement releases of a data set with so many classes."""
    metric = metric_of_score(score)
    return 2 if metric is None else metric.size(classes)


def check_metric(score: Score, classes: int, loss: Loss) -> None:
    """Raises ValueError where a data set with so many classes, 1 for a number, has no such metric."""
    metric = metric_of_score(score)
    if metric is None:
        return
    if classes < 2 or loss.labels != "int64":
        name = getattr(score, "metric", metric.label)
        raise ValueError(f"Expected score.metric={name} to be {ACCURACY} where the label is a number.")
    metric.check(classes)


@dataclass(frozen=True, kw_only=True)
class PrivateHoldout:
    """The accuracy on held-out private records from two noisy counts: of right and of wrong predictions.

    Each record lies in exactly one of the two counts, and a unit of several records in both, by the shares of
    them that are right and wrong: s and 1 - s. So the pair has sensitivity 1 and one event covers it, and the
    accuracy is the units' mean; the number of held-out units itself is never used. `noise_std` is None until
    the plan has chosen it.

    Any other `metric` has a table of counts in place of the pair, with the same noise on every cell. It has the same
    sensitivity, 1 where a unit is added or removed and the square root of 2 where one is replaced, and the same event,
    which is priced for 2 where one is replaced.
    """

    fraction: float
    noise_std: float | None = None
    every: int | None = None
    metric: str = ACCURACY
    positive: int = POSITIVE
    bins: int = BINS

    def __post_init__(self) -> None:
        if self.every is not None:
            raise ValueError(
                f"Expected score.every={self.every} to be null with score=private: each look would have to be charged."
            )
        fraction("fraction", self.fraction)
        metric_of(self.metric, positive=self.positive, bins=self.bins)
        if self.noise_std is not None:
            positive("noise_std", self.noise_std)

    @property
    def measured(self) -> Metric | None:
        """What is measured besides accuracy."""
        return metric_of(self.metric, positive=self.positive, bins=self.bins)

    @property
    def statement(self) -> str:
        """Names the held-out fraction and the noise."""
        return (
            f"{_name(self.measured)} on {self.fraction:.0%} of the private records, held out from training; "
            f"counts carry Gaussian noise of standard deviation {self._std():.3g} and are charged."
        )

    def event(self) -> DpEvent:
        """One Gaussian mechanism on the pair of counts."""
        return gaussian(noise_multiplier=self._std())

    def train_records(self, records: int, adjacency: Adjacency) -> int:
        """The remainder, public whatever the split turns out to be; at least 1."""
        from dpsweep.trainers.data.split import left_by_position

        positive_int("records", records)
        replacing = Adjacency(adjacency) is Adjacency.REPLACE_ONE
        left = left_by_position(records, self.fraction) if replacing else round(records * (1 - self.fraction))
        return max(1, left)

    def check(self, test_records: int, *, public: bool) -> None:
        """There must be private records to hold out."""
        if public:
            raise ValueError("Expected score=public or score=training with dataset.public=true: no record is private.")

    def split(self, private: Records, test: Records | None, adjacency: Adjacency) -> Split:
        """Two disjoint parts of the private records."""
        from dpsweep.trainers.data.split import hold_out

        return hold_out(private, fraction=self.fraction, adjacency=adjacency, test=test)

    def measure(
        self,
        model: nn.Module,
        data: Split,
        rng: np.random.Generator,
        device: torch.device | str,
        loss: Loss = CROSS_ENTROPY,
    ) -> Estimate:
        """Releases the noisy counts, and the number that follows from them alone."""
        if data.holdout is None:
            raise ValueError("Expected split.holdout=None to be the held-out private records.")
        metric, places = self.measured, rng.permutation(len(data.holdout))
        if metric is None:
            counts = right_and_wrong(model, data.holdout, device, loss, places)
        else:
            counts = table(model, data.holdout, device, metric, places)
        noisy = add_noise(counts, self._std(), rng)
        if metric is None:
            return noisy_accuracy(float(noisy[0]), float(noisy[1]), self._std())
        return metric.estimate(noisy, self._std())

    def _std(self) -> float:
        if self.noise_std is None:
            raise ValueError("Expected noise_std=None to be a number; the plan chooses it.")
        return float(self.noise_std)


@dataclass(frozen=True, kw_only=True)
class PublicTest:
    """The exact accuracy on a test set that was declared public: free, and not covered by any guarantee.

    Looked at as well every so many steps, for a learning curve, where `every` is a number.
    """

    every: int | None = None
    metric: str = ACCURACY
    positive: int = POSITIVE
    bins: int = BINS

    def __post_init__(self) -> None:
        if self.every is not None:
            positive_int("score.every", self.every)
        metric_of(self.metric, positive=self.positive, bins=self.bins)

    @property
    def measured(self) -> Metric | None:
        """What is measured besides accuracy."""
        return metric_of(self.metric, positive=self.positive, bins=self.bins)

    @property
    def statement(self) -> str:
        """Names the exemption."""
        name = _name(self.measured)
        return f"{name} on a test set declared public: exact, not charged, and no guarantee covers its records."

    def event(self) -> None:
        """None: no private record is read."""
        return

    def train_records(self, records: int, adjacency: Adjacency) -> int:
        """All of them."""
        positive_int("records", records)
        return records

    def check(self, test_records: int, *, public: bool) -> None:
        """There must be public records to read."""
        if test_records < 1:
            raise ValueError(f"Expected test_records={test_records} >= 1: no public test set; use score=private.")

    def split(self, private: Records, test: Records | None, adjacency: Adjacency) -> Split:
        """All private records are trained on."""
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
        return _exact(model, data.test, device, loss, self.measured)


@dataclass(frozen=True, kw_only=True)
class OnTraining(PublicTest):
    """The exact accuracy on the very records that were trained on, where those were declared public: free."""

    @property
    def statement(self) -> str:
        """Names the exemption, and what such a score is worth."""
        name = _name(self.measured)
        return f"{name} on the training records, declared public: exact, not charged, and higher than on new records."

    def check(self, test_records: int, *, public: bool) -> None:
        """The training records must be public."""
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
        return _exact(model, data.train, device, loss, self.measured)


def _exact(
    model: nn.Module, records: Records, device: torch.device | str, loss: Loss, metric: Metric | None
) -> Estimate:
    """What public records say, counted one by one, also where several are of one unit."""
    if metric is not None:
        return metric.estimate(table(model, replace(records, units=None), device, metric), 0.0)
    right = qualities(model, records, device, loss)
    return wilson(float(right.sum()), len(right))


def _name(metric: Metric | None) -> str:
    """What begins a sentence about this metric."""
    label = ACCURACY if metric is None else metric.label
    return label[0].upper() + label[1:]
