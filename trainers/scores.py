"""How a trained model is scored, what the score costs, and how sure it is.

A score of private records is an access to private data and says so by its event; the records it reads are
held out from training, so the two parts are disjoint populations. A score of a public test set costs nothing,
because someone declared that set public. Every score is the mean of the records' qualities, each in [0, 1] as the loss
has it, and of classes the accuracy, with a 95 % interval that covers the noise and the finite number of records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from accounting.events import DpEvent, gaussian
from accounting.guarantee import Adjacency
from trainers.losses import CROSS_ENTROPY
from trainers.noise import add_noise
from trainers.validation import fraction, positive, positive_int

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import nn

    from trainers.data.records import Records
    from trainers.data.split import Split
    from trainers.losses import Loss

_Z95 = 1.959963984540054
_CHUNK = 256
"""Records of a pass, whatever their number: float32 kernels of other shapes round the other records otherwise."""

_DROWNED = 3.0


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """A share of correct predictions, or a mean quality, and its 95 % interval, all in [0, 1]."""

    value: float
    low: float
    high: float


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
    ) -> Accuracy:
        """The model's accuracy on the records that this score reads."""
        ...


def looks_every(score: Score) -> int | None:
    """After how many steps each it is looked at how training goes; None where it is not."""
    return getattr(score, "every", None)


@dataclass(frozen=True, kw_only=True)
class PrivateHoldout:
    """The accuracy on held-out private records from two noisy counts: of right and of wrong predictions.

    Each record lies in exactly one of the two counts, and a unit of several records in both, by the shares of
    them that are right and wrong: s and 1 - s. So the pair has sensitivity 1 and one event covers it, and the
    accuracy is the units' mean; the number of held-out units itself is never used. `noise_std` is None until
    the plan has chosen it.
    """

    fraction: float
    noise_std: float | None = None
    every: int | None = None

    def __post_init__(self) -> None:
        if self.every is not None:
            raise ValueError(
                f"Expected score.every={self.every} to be null with score=private: each look would have to be charged."
            )
        fraction("fraction", self.fraction)
        if self.noise_std is not None:
            positive("noise_std", self.noise_std)

    @property
    def statement(self) -> str:
        """Names the held-out fraction and the noise."""
        return (
            f"Accuracy on {self.fraction:.0%} of the private records, held out from training; "
            f"counts carry Gaussian noise of standard deviation {self._std():.3g} and are charged."
        )

    def event(self) -> DpEvent:
        """One Gaussian mechanism on the pair of counts."""
        return gaussian(noise_multiplier=self._std())

    def train_records(self, records: int, adjacency: Adjacency) -> int:
        """The remainder, public whatever the split turns out to be; at least 1."""
        from trainers.data.split import left_by_position

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
        from trainers.data.split import hold_out

        return hold_out(private, fraction=self.fraction, adjacency=adjacency, test=test)

    def measure(
        self,
        model: nn.Module,
        data: Split,
        rng: np.random.Generator,
        device: torch.device | str,
        loss: Loss = CROSS_ENTROPY,
    ) -> Accuracy:
        """Releases the two noisy counts, and the accuracy that follows from them alone."""
        if data.holdout is None:
            raise ValueError("Expected split.holdout=None to be the held-out private records.")
        counts = right_and_wrong(model, data.holdout, device, loss, rng.permutation(len(data.holdout)))
        right, wrong = add_noise(counts, self._std(), rng)
        return noisy_accuracy(float(right), float(wrong), self._std())

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

    def __post_init__(self) -> None:
        if self.every is not None:
            positive_int("score.every", self.every)

    @property
    def statement(self) -> str:
        """Names the exemption."""
        return "Accuracy on a test set declared public: exact, not charged, and no guarantee covers its records."

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
        from trainers.data.split import Split

        return Split(train=private, test=test)

    def measure(
        self,
        model: nn.Module,
        data: Split,
        rng: np.random.Generator,
        device: torch.device | str,
        loss: Loss = CROSS_ENTROPY,
    ) -> Accuracy:
        """Counts right predictions; draws nothing from `rng`."""
        if data.test is None or len(data.test) == 0:
            raise ValueError("Expected split.test=None to be public test records; use score=private.")
        qualities = _qualities(model, data.test, device, loss)
        return wilson(float(qualities.sum()), len(qualities))


@dataclass(frozen=True, kw_only=True)
class OnTraining(PublicTest):
    """The exact accuracy on the very records that were trained on, where those were declared public: free."""

    @property
    def statement(self) -> str:
        """Names the exemption, and what such a score is worth."""
        return "Accuracy on the training records, declared public: exact, not charged, and higher than on new records."

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
    ) -> Accuracy:
        """Counts right predictions; draws nothing from `rng`."""
        qualities = _qualities(model, data.train, device, loss)
        return wilson(float(qualities.sum()), len(qualities))


def noisy_accuracy(right: float, wrong: float, noise_std: float) -> Accuracy:
    """Accuracy from two counts that each carry noise: a function of the noisy counts alone, so free.

    The interval adds the variance of the ratio to first order in the noise to the binomial variance, whose
    rate is drawn towards 1/2 by two records of each kind (Agresti & Coull 1998). Units' shares in [0, 1] vary at
    most as much as such a coin of their mean, so it covers them too. It is all of [0, 1] where noise drowns counts.
    """
    total = right + wrong
    if total <= _DROWNED * math.sqrt(2) * noise_std:
        value = min(max(right / total, 0.0), 1.0) if total > 0 else 0.0
        return Accuracy(value=value, low=0.0, high=1.0)
    value = min(max(right / total, 0.0), 1.0)
    by_noise = noise_std**2 * (value**2 + (1 - value) ** 2) / total**2
    rate = (value * total + 2) / (total + 4)
    margin = _Z95 * math.sqrt(by_noise + rate * (1 - rate) / total)
    return Accuracy(value=value, low=max(0.0, value - margin), high=min(1.0, value + margin))


def wilson(right: float, total: int) -> Accuracy:
    """Accuracy from exact counts with the score interval. Source: Wilson 1927."""
    value, z2 = right / total, _Z95**2
    centre = (value + z2 / (2 * total)) / (1 + z2 / total)
    margin = _Z95 / (1 + z2 / total) * math.sqrt(value * (1 - value) / total + z2 / (4 * total**2))
    return Accuracy(value=value, low=min(value, max(0.0, centre - margin)), high=max(value, min(1.0, centre + margin)))


def right_and_wrong(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    loss: Loss = CROSS_ENTROPY,
    order: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """How many units the model has right and wrong [2]: each by its quality, one of several records by their mean.

    Guarantee: one unit changes the pair by at most 1 in norm, however many records it has. Kernels may round a record
    otherwise in another place: with a random `order` [n] of the records, a unit that joins changes the places of as
    many others as it has records, and without one those of all that follow.
    """
    shares = records.shares(_qualities(model, records, device, loss, order))
    return np.array([shares.sum(), (1 - shares).sum()])


def _qualities(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    loss: Loss,
    order: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """How good the model is on each record [n], each judged on its own, in passes of one shape."""
    import torch

    training = model.training
    model.eval()
    places = np.arange(len(records)) if order is None else order
    qualities = np.zeros(len(records))
    with torch.no_grad():
        for start in range(0, len(records), _CHUNK):
            part = places[start : start + _CHUNK]
            filled = np.pad(part, (0, _CHUNK - len(part)), mode="edge")
            quality = loss.quality(model(records.inputs(filled, device)), records.targets(filled, device))
            qualities[part] = quality.cpu().numpy()[: len(part)]
    model.train(training)
    return qualities
