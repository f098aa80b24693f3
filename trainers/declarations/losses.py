"""Losses that models are trained on, each with a quality between 0 and 1 for scoring.

The second dimension of outputs holds the classes, or the one predicted number; further dimensions may follow. A
declaration of a loss imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from dpsweep.accounting.numbers import positive

if TYPE_CHECKING:
    from torch import Tensor


class Loss(Protocol):
    """The sum of per-example losses; each example's loss depends on its own outputs and target alone.

    `labels` is the dtype of the targets, and `quality_name` is the name of the mean quality on report pages. The
    optional attribute `per_position` says that an example has one target for each position of its input
    (`trainers/declarations/next_token.py`); without it an example has a single target.
    """

    labels: ClassVar[str]
    quality_name: ClassVar[str]

    def check(self, classes: int) -> None:
        """Raises ValueError if this loss does not fit `classes` classes (1 if the label is a number)."""
        ...

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The summed loss, a single number, of outputs [n, c, ...] and targets [n, ...]."""
        ...

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient with respect to the outputs, of the same shape; targets may lack leading dimensions."""
        ...

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The quality of each example's outputs: [n] in [0, 1], and 0 if outputs are not finite."""
        ...

    def unlikely(self, outputs: Tensor) -> Tensor:
        """Targets [n, ...] that are far from these outputs, so that no loss gradient vanishes."""
        ...


@dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """The cross-entropy of outputs [n, classes, ...] as logits and targets [n, ...] of int64."""

    labels: ClassVar[str] = "int64"
    quality_name: ClassVar[str] = "accuracy"

    def check(self, classes: int) -> None:
        """Refuse fewer than two classes."""
        if classes < 2:
            raise ValueError(
                f"Expected dataset.classes={classes} >= 2 with loss=cross_entropy; use loss=squared_error."
            )

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all examples."""
        from torch.nn import functional

        return functional.cross_entropy(outputs, targets, reduction="sum")

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient with respect to the logits: softmax(outputs) - one_hot(targets)."""
        probabilities = outputs.softmax(dim=1)
        right = targets.expand(len(outputs), *outputs.shape[2:])[:, None]
        return probabilities.scatter_add_(1, right, probabilities.new_full((), -1.0).expand(right.shape))

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 if the most likely class is the true class, else 0."""
        return (outputs.argmax(dim=1) == targets).to(outputs.dtype)

    def unlikely(self, outputs: Tensor) -> Tensor:
        """The least likely classes."""
        return outputs.argmin(dim=1)


CROSS_ENTROPY = CrossEntropy()


@dataclass(frozen=True, kw_only=True)
class SquaredError:
    """Half the squared differences of outputs [n, 1, ...] and targets [n, ...], which are numbers.

    The quality of a prediction is 1 - error^2 / cap, at least 0; `cap` is a public bound and part of the metric.
    """

    labels: ClassVar[str] = "float32"
    quality_name: ClassVar[str] = "1 - squared error / cap"
    cap: float = 1.0

    def __post_init__(self) -> None:
        positive("cap", self.cap)

    def check(self, classes: int) -> None:
        """Refuse labels that are classes."""
        if classes != 1:
            raise ValueError(
                f"Expected dataset.classes={classes} == 1 with loss=squared_error; use loss=cross_entropy."
            )

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all examples."""
        from torch.nn import functional

        return functional.mse_loss(outputs.squeeze(1), targets.to(outputs.dtype), reduction="sum") / 2

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The differences outputs - targets."""
        return outputs - targets.expand(len(outputs), *outputs.shape[2:])[:, None].to(outputs.dtype)

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 - error^2 / cap, at least 0."""
        errors = (outputs.squeeze(1) - targets).square()
        return (1 - errors / self.cap).clamp(min=0).nan_to_num(nan=0.0)

    def unlikely(self, outputs: Tensor) -> Tensor:
        """The outputs minus 1."""
        return outputs.squeeze(1) - 1
