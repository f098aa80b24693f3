"""Output perturbation: a convex model is fitted to all records, and noise is added once to its parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsweep.accounting.codec import positive
from dpsweep.accounting.events.build import DpEvent, output_perturbation
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.declarations.lr_schedules import Constant, LearningRate
from dpsweep.trainers.methods.method import Trainer
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.methods.updates import Sgd

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONVEX = "logistic"
"""The model with a cross-entropy that is convex in its parameters; given by name, since its import loads torch."""

INEXACT = 1e-3
"""Largest distance of a fitted model from the minimum, as a share of the sensitivity of the minimum to one record."""


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation(Trainer):
    """Softmax regression without a bias, fitted with the penalty l2 / 2 |w|^2, plus Gaussian noise.

    *Guarantee*: a record adds loss(w; x, y) / n to the objective, with n the declared number of records. With |x|
    clipped to `feature_norm`, the norm of the loss's gradient is at most `lipschitz`, and the objective is l2-strongly
    convex, so adding one record moves the minimum by at most lipschitz / (n l2), and replacing one by at most twice
    that. Models are fitted until the gradient certifies a distance to the minimum <= `INEXACT` times the first bound.
    Source: Chaudhuri, Monteleoni, Sarwate 2011, Corollary 8 and Algorithm 1, with Gaussian noise.
    """

    works: ClassVar[tuple[str, ...]] = ("chaudhuri2011differentially",)

    label = "output perturbation"
    lr, update = 1.0, Sgd()
    """Placeholders: no step is taken."""

    l2: float
    feature_norm: float

    def __post_init__(self) -> None:
        positive("l2", self.l2)
        positive("feature_norm", self.feature_norm)
        object.__setattr__(
            self, "transform", Clip(clip_norm=self.loss_gradient_norm_bound)
        )  # the bound on features implies it

    @property
    def loss_gradient_norm_bound(self) -> float:
        """Bound on the gradient norm of a record's loss: at most sqrt(2) for the probabilities, times the features."""
        return math.sqrt(2) * self.feature_norm

    def minimum_shift_bound(self, records: int) -> float:
        """Bound on the shift of the minimum when one record is added, at this nominal number of records."""
        return self.loss_gradient_norm_bound / (records * self.l2)

    def check(self, steps: int, schedule: LearningRate) -> None:
        """Raises ValueError unless the run has one step and a constant schedule."""
        if steps != 1 or not isinstance(schedule, Constant):
            raise ValueError(
                f"Expected steps={steps} to be 1 and lr_schedule=constant: output perturbation reads all records once."
            )


@dataclass(frozen=True, kw_only=True)
class Everyone:
    """All records, once: the sampler of a method without subsampling.

    *Guarantee*: `event` is the Gaussian mechanism on the fitted model; its sensitivity under this adjacency is the
    sensitivity of the minimum plus twice the inexactness.
    """

    batch_size: int
    adjacency: Adjacency

    def steps_per_period(self, records: int) -> int:
        """One access."""
        return 1

    def event_per_period(self, *, records: int, noise_multiplier: float) -> DpEvent:
        """The event with noise of `noise_multiplier` times the shift of the minimum when one record is added."""
        moved = 2 if self.adjacency is Adjacency.REPLACE_ONE else 1
        return output_perturbation(
            noise_std=noise_multiplier, sensitivity=moved + 2 * INEXACT, adjacency=self.adjacency
        )

    def draw_batch_indices(
        self, rows: int, available: int, records: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All records."""
        return np.tile(np.arange(available), rows), np.full(rows, available)
