"""What models are trained on, and how good what they say is: the loss of each example, and its quality between 0 and 1.

Outputs have their classes, or their one number, in the second dimension, whatever comes after it. A declaration of a
loss imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from dpsweep.accounting.numbers import positive

if TYPE_CHECKING:
    from torch import Tensor


class Loss(Protocol):
    """The sum of the examples' losses, each of which depends on its own outputs and target alone.

    `labels` is the dtype of the targets, and `quality_name` what a page calls the mean quality.
    """

    labels: ClassVar[str]
    quality_name: ClassVar[str]

    def check(self, classes: int) -> None:
        """Raises ValueError where a data set with so many classes, 1 for a number, cannot be learnt by this loss."""
        ...

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """A single number, of outputs [n, c, ...] and targets [n, ...]."""
        ...

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Its gradient with respect to the outputs, of their shape; targets may lack leading dimensions."""
        ...

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How good each example's outputs are: [n] in [0, 1], and 0 where they are not finite."""
        ...

    def unlikely(self, outputs: Tensor) -> Tensor:
        """Targets [n, ...] that these outputs are far from, so that no loss of them is flat."""
        ...


@dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """The cross-entropy of outputs [n, classes, ...] as logits and targets [n, ...] of int64."""

    labels: ClassVar[str] = "int64"
    quality_name: ClassVar[str] = "accuracy"

    def check(self, classes: int) -> None:
        """There must be classes."""
        if classes < 2:
            raise ValueError(
                f"Expected dataset.classes={classes} >= 2 with loss=cross_entropy; use loss=squared_error."
            )

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all examples."""
        from torch.nn import functional

        return functional.cross_entropy(outputs, targets, reduction="sum")

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What the model says of each class, less one for the right one."""
        probabilities = outputs.softmax(dim=1)
        right = targets.expand(len(outputs), *outputs.shape[2:])[:, None]
        return probabilities.scatter_add_(1, right, probabilities.new_full((), -1.0).expand(right.shape))

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 where the likeliest class is the right one."""
        return (outputs.argmax(dim=1) == targets).to(outputs.dtype)

    def unlikely(self, outputs: Tensor) -> Tensor:
        """The least likely classes."""
        return outputs.argmin(dim=1)


CROSS_ENTROPY = CrossEntropy()


@dataclass(frozen=True, kw_only=True)
class SquaredError:
    """Half the squared differences of outputs [n, 1, ...] and targets [n, ...], which are numbers.

    A prediction has the quality 1 - error^2 / cap, at least 0: `cap` is a public bound, and part of what is measured.
    """

    labels: ClassVar[str] = "float32"
    quality_name: ClassVar[str] = "1 - squared error / cap"
    cap: float = 1.0

    def __post_init__(self) -> None:
        positive("cap", self.cap)

    def check(self, classes: int) -> None:
        """There must be one number to learn."""
        if classes != 1:
            raise ValueError(
                f"Expected dataset.classes={classes} == 1 with loss=squared_error; use loss=cross_entropy."
            )

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all examples."""
        from torch.nn import functional

        return functional.mse_loss(outputs.squeeze(1), targets.to(outputs.dtype), reduction="sum") / 2

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The differences."""
        return outputs - targets.expand(len(outputs), *outputs.shape[2:])[:, None].to(outputs.dtype)

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 - error^2 / cap, at least 0."""
        errors = (outputs.squeeze(1) - targets).square()
        return (1 - errors / self.cap).clamp(min=0).nan_to_num(nan=0.0)

    def unlikely(self, outputs: Tensor) -> Tensor:
        """Numbers 1 less than these."""
        return outputs.squeeze(1) - 1
