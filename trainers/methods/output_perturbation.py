"""Output perturbation: a convex model is fitted to all records at once, and noise is added to it, once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsweep.accounting.events.build import DpEvent, output_perturbation
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.numbers import positive
from dpsweep.trainers.declarations.lr_schedules import Constant, LearningRate
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.methods.updates import Sgd

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONVEX = "logistic"
"""The model whose cross-entropy is convex in its parameters, by its name: to import it is to import torch."""

INEXACT = 1e-3
"""How far from the minimum a fitted model may be, as a share of what adding a record may move the minimum by."""


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation:
    """Softmax regression without a bias, fitted with the penalty l2 / 2 |w|^2, plus Gaussian noise.

    *Guarantee*: a record adds loss(w; x, y) / n to what is minimised, n the declared number of records. With |x| cut to
    `feature_norm` the loss's gradient is no longer than `lipschitz`, and what is minimised is l2-strongly convex, so
    one record more moves the minimum by lipschitz / (n l2) at most, and another one in its place by twice that. Models
    are fitted until the gradient certifies that they are no farther than `INEXACT` of it from their minimum.
    Source: Chaudhuri, Monteleoni, Sarwate 2011, Corollary 8 and Algorithm 1, with Gaussian noise.
    """

    label: ClassVar[str] = "output perturbation"
    l2: float
    feature_norm: float

    def __post_init__(self) -> None:
        positive("l2", self.l2)
        positive("feature_norm", self.feature_norm)

    @property
    def lipschitz(self) -> float:
        """The longest gradient of a record's loss: probabilities are off by sqrt(2) at most, times the features."""
        return math.sqrt(2) * self.feature_norm

    @property
    def lr(self) -> float:
        """No step is taken."""
        return 1.0

    @property
    def transform(self) -> Clip:
        """What the bound on features already does."""
        return Clip(clip_norm=self.lipschitz)

    @property
    def update(self) -> Sgd:
        """No step is taken, so nothing is remembered."""
        return Sgd()

    def moved_by(self, records: int) -> float:
        """How far one record more may move the minimum, at that nominal number of records."""
        return self.lipschitz / (records * self.l2)

    def check(self, steps: int, schedule: LearningRate) -> None:
        """Raises ValueError unless there is one access and nothing to schedule."""
        if steps != 1 or not isinstance(schedule, Constant):
            raise ValueError(
                f"Expected steps={steps} to be 1 and lr_schedule=constant: output perturbation reads all records once."
            )


@dataclass(frozen=True, kw_only=True)
class Everyone:
    """All records, once: the sampler of a method that does not sample.

    *Guarantee*: `event` is the Gaussian mechanism on the fitted model, whose sensitivity for these neighbours is that
    of the minimum and twice the inexactness.
    """

    batch_size: int
    adjacency: Adjacency

    def period(self, records: int) -> int:
        """One access."""
        return 1

    def event(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """Noise of so many times what one record more may move the minimum by."""
        moved = 2 if self.adjacency is Adjacency.REPLACE_ONE else 1
        return output_perturbation(
            noise_std=noise_multiplier, sensitivity=moved + 2 * INEXACT, adjacency=self.adjacency
        )

    def draw(
        self, rows: int, available: int, records: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All of them."""
        return np.tile(np.arange(available), rows), np.full(rows, available)
