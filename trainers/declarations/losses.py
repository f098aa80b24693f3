"""Losses that models are trained on, each with a quality between 0 and 1 for scoring.

The second dimension of outputs holds the classes, or the one predicted number; further dimensions may follow. A causal
language model predicts each token from the tokens before it. A declaration of a loss imports no torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpsweep.accounting.codec import below_one, positive
from dpsweep.trainers.data.records import IGNORED
from dpsweep.trainers.user_modules import is_of_users_own_class

if TYPE_CHECKING:
    from torch import Tensor

    from dpsweep.trainers.data.interface import DataSet


class Loss(ABC):
    """The sum of per-example losses; each example's loss depends on its own outputs and target alone.

    Every loss inherits from it. `labels` is the dtype of the targets, `quality_name` the name of the mean quality on
    report pages. `per_position` says that an example has one target for each position of its input, in place of a
    single one, `several_labels` that it has one for each output, `has_binary_quality` that its quality is 0 or 1.
    """

    labels: ClassVar[str]
    quality_name: ClassVar[str]
    per_position: ClassVar[bool] = False
    several_labels: ClassVar[bool] = False
    has_binary_quality: ClassVar[bool] = False

    @abstractmethod
    def check(self, classes: int) -> None:
        """Raises ValueError if this loss does not fit `classes` classes (1 if the label is a number)."""

    @abstractmethod
    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The summed loss, a single number, of outputs [n, c, ...] and targets [n, ...]."""

    @abstractmethod
    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient with respect to the outputs, of the same shape; targets may lack leading dimensions."""

    @abstractmethod
    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The quality of each example's outputs: [n] in [0, 1], and 0 if outputs are not finite."""

    @abstractmethod
    def unlikely_targets(self, outputs: Tensor) -> Tensor:
        """Targets [n, ...] that are far from these outputs, so that no loss gradient vanishes."""


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Loss):
    """The cross-entropy of outputs [n, classes, ...] as logits and targets [n, ...] of int64.

    `class_weights` [classes] are declared constants, so that a rare class can be trained for; None for weights of 1.
    They multiply bounded gradients (`example_weights`), not losses: a method that normalizes gradients cancels a factor
    on a loss, and clipping cuts it off.
    `label_smoothing` is the share of each target that all classes get in equal parts.
    Source: Szegedy, Vanhoucke, Ioffe, Shlens, Wojna 2016, Section 7 (label smoothing).
    """

    labels: ClassVar[str] = "int64"
    quality_name: ClassVar[str] = "accuracy"
    has_binary_quality: ClassVar[bool] = True
    class_weights: tuple[float, ...] | None = None
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        below_one("loss.label_smoothing", self.label_smoothing)
        if self.class_weights is None:
            return
        if isinstance(self.class_weights, str) or not isinstance(self.class_weights, Sequence):
            raise ValueError(f"Expected loss.class_weights={self.class_weights!r} to be a list of numbers.")
        for weight in self.class_weights:
            positive("loss.class_weights", weight)
        object.__setattr__(self, "class_weights", tuple(map(float, self.class_weights)))

    def check(self, classes: int) -> None:
        """Refuse fewer than two classes, and weights for other classes."""
        if self.class_weights is not None and len(self.class_weights) != classes:
            raise ValueError(
                f"Expected loss.class_weights={list(self.class_weights)} to have a weight for each of "
                f"dataset.classes={classes}."
            )
        if classes < 2:
            raise ValueError(
                f"Expected dataset.classes={classes} >= 2 with loss=cross_entropy; use loss=squared_error."
            )

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all examples."""
        from torch.nn import functional

        return functional.cross_entropy(outputs, targets, reduction="sum", label_smoothing=self.label_smoothing)

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient with respect to the logits: softmax(outputs) - smoothed targets."""
        probabilities = outputs.softmax(dim=1)
        if self.label_smoothing:
            probabilities -= self.label_smoothing / outputs.shape[1]
        right, share = targets.expand(len(outputs), *outputs.shape[2:])[:, None], self.label_smoothing - 1.0
        return probabilities.scatter_add_(1, right, probabilities.new_full((), share).expand(right.shape))

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 if the most likely class is the true class, else 0."""
        return (outputs.argmax(dim=1) == targets).to(outputs.dtype)

    def unlikely_targets(self, outputs: Tensor) -> Tensor:
        """The least likely classes."""
        return outputs.argmin(dim=1)


CROSS_ENTROPY = CrossEntropy()


def example_weights(loss: Loss, targets: Tensor) -> Tensor:
    """The weight of each example's class over the largest weight: [n] in float64, 1 where the loss declares none.

    A unit's bounded gradient is multiplied by the mean of its examples' weights.

    *Guarantee*: a weight is in [0, 1], rounding included, and depends on the example's own label and on declared
    numbers alone. So a unit adds at most the bound, as it does without weights, under both adjacencies.
    """
    import torch

    if (declared := _class_weights(loss)) is None:
        return torch.ones(len(targets), dtype=torch.float64, device=targets.device)
    weights = torch.tensor(declared, dtype=torch.float64, device=targets.device)
    return (weights / weights.max())[targets]


def default_rate_factor(loss: Loss) -> float:
    """The factor on default learning rates: the largest class weight over their mean, and 1 without weights.

    `example_weights` shorten the gradients of the lighter classes, and a larger rate makes up for it. The mean does not
    weigh classes by their records, whose counts are private.

    >>> default_rate_factor(CrossEntropy()), default_rate_factor(CrossEntropy(class_weights=(1, 3)))
    (1.0, 1.5)
    """
    weights = _class_weights(loss) or (1.0,)
    return max(weights) * len(weights) / math.fsum(weights)


def _class_weights(loss: Loss) -> tuple[float, ...] | None:
    return loss.class_weights if isinstance(loss, CrossEntropy) else None


class NumberLoss(Loss):
    """A loss of the differences of outputs [n, 1, ...] and targets [n, ...], which are numbers.

    Every loss of numbers inherits from it. `cap` is a public bound and part of the metric: the quality of a prediction
    is 0 where its error, or the square of its error, is at least `cap`. `error_name` is the name of the mean error that
    follows from a mean quality, `tag` the word for this loss in `loss=`.
    """

    labels: ClassVar[str] = "float32"
    error_name: ClassVar[str]
    tag: ClassVar[str]
    cap: float

    def check(self, classes: int) -> None:
        """Refuse labels that are classes."""
        if classes != 1:
            raise ValueError(f"Expected dataset.classes={classes} == 1 with loss={self.tag}; use loss=cross_entropy.")

    @abstractmethod
    def mean_error(self, quality: float) -> float:
        """The mean error of predictions with this mean quality in [0, 1], with errors capped; it falls as that rises.

        It has the unit of the targets.
        """

    @property
    @abstractmethod
    def other_error(self) -> NumberLoss:
        """The loss with the other mean error, with errors capped at the same value."""

    def unlikely_targets(self, outputs: Tensor) -> Tensor:
        """The outputs minus 1."""
        return outputs.squeeze(1) - 1


def _differences(outputs: Tensor, targets: Tensor) -> Tensor:
    """The differences outputs - targets [n, 1, ...]; targets may lack leading dimensions."""
    return outputs - targets.expand(len(outputs), *outputs.shape[2:])[:, None].to(outputs.dtype)


def _closeness(errors: Tensor, cap: float) -> Tensor:
    """1 - error / cap, at least 0, and 0 if an error is not finite."""
    return (1 - errors / cap).clamp(min=0).nan_to_num(nan=0.0)


@dataclass(frozen=True, kw_only=True)
class SquaredError(NumberLoss):
    """Half the squared differences of outputs [n, 1, ...] and targets [n, ...], which are numbers.

    The quality of a prediction is 1 - error^2 / cap, at least 0.
    """

    quality_name: ClassVar[str] = "1 - squared error / cap"
    error_name: ClassVar[str] = "root mean squared error"
    tag: ClassVar[str] = "squared_error"
    cap: float = 1.0

    def __post_init__(self) -> None:
        positive("cap", self.cap)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all examples."""
        from torch.nn import functional

        return functional.mse_loss(outputs.squeeze(1), targets.to(outputs.dtype), reduction="sum") / 2

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The differences outputs - targets."""
        return _differences(outputs, targets)

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 - error^2 / cap, at least 0."""
        return _closeness((outputs.squeeze(1) - targets).square(), self.cap)

    def mean_error(self, quality: float) -> float:
        """The root of the mean squared error."""
        return math.sqrt(self.cap * (1 - quality))

    @property
    def other_error(self) -> AbsoluteError:
        """The absolute error."""
        return AbsoluteError(cap=math.sqrt(self.cap))


@dataclass(frozen=True, kw_only=True)
class _AbsoluteErrorScore(NumberLoss):
    """Losses that are scored by the absolute error: the quality of a prediction is 1 - absolute error / cap."""

    quality_name: ClassVar[str] = "1 - absolute error / cap"
    error_name: ClassVar[str] = "mean absolute error"
    cap: float = 1.0

    def __post_init__(self) -> None:
        positive("cap", self.cap)

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 - absolute error / cap, at least 0."""
        return _closeness((outputs.squeeze(1) - targets).abs(), self.cap)

    def mean_error(self, quality: float) -> float:
        """The mean absolute error."""
        return self.cap * (1 - quality)

    @property
    def other_error(self) -> SquaredError:
        """The squared error."""
        return SquaredError(cap=self.cap**2)


@dataclass(frozen=True, kw_only=True)
class AbsoluteError(_AbsoluteErrorScore):
    """The absolute differences of outputs [n, 1, ...] and targets [n, ...], which are numbers.

    The quality of a prediction is 1 - error / cap, at least 0. Every gradient with respect to an output is -1, 0 or 1,
    so outliers among the targets weigh no more than other records.
    """

    tag: ClassVar[str] = "absolute_error"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all examples."""
        from torch.nn import functional

        return functional.l1_loss(outputs.squeeze(1), targets.to(outputs.dtype), reduction="sum")

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The signs of the differences outputs - targets."""
        return _differences(outputs, targets).sign()


@dataclass(frozen=True, kw_only=True)
class Huber(_AbsoluteErrorScore):
    """Half the squared difference up to an absolute difference of `delta`, and linear beyond it, with slope `delta`.

    It trains like the squared error near the target and like the absolute error far from it. The quality of a
    prediction is 1 - absolute error / cap, at least 0: so a score is a mean absolute error, which has the target's
    unit, and scores with different `delta` can be compared.
    Source: Huber 1964, Robust estimation of a location parameter.
    """

    tag: ClassVar[str] = "huber"
    delta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("loss.delta", self.delta)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all examples."""
        from torch.nn import functional

        numbers = targets.to(outputs.dtype)
        return functional.huber_loss(outputs.squeeze(1), numbers, reduction="sum", delta=self.delta)

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The differences outputs - targets, clamped to [-delta, delta]."""
        return _differences(outputs, targets).clamp(min=-self.delta, max=self.delta)


@dataclass(frozen=True, kw_only=True)
class BinaryCrossEntropy(Loss):
    """The mean binary cross-entropy over a record's labels: outputs [n, labels] are log-odds, targets 0 or 1.

    A record's loss is one number, so its gradient is bounded as a whole, whatever the number of its labels. Its quality
    is the share of its labels that are right at a probability of 1/2.
    """

    labels: ClassVar[str] = "float32"
    quality_name: ClassVar[str] = "share of right labels"
    several_labels: ClassVar[bool] = True

    def check(self, classes: int) -> None:
        """Refuse a single label."""
        if classes < 2:
            raise ValueError(
                f"Expected dataset.classes={classes} >= 2 labels with loss=binary_cross_entropy; one label of two "
                "values is a class for loss=cross_entropy."
            )

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all records."""
        from torch.nn import functional

        numbers = targets.to(outputs.dtype)
        return functional.binary_cross_entropy_with_logits(outputs, numbers, reduction="sum") / outputs.shape[1]

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(sigmoid(outputs) - targets) / number of labels."""
        return (outputs.sigmoid() - targets.to(outputs.dtype)) / outputs.shape[1]

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The share of labels that are right; a label whose output is not finite is wrong."""
        return self.right_labels(outputs, targets).to(outputs.dtype).mean(dim=1)

    def right_labels(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Whether each label [n, labels] is right at a probability of 1/2."""
        return ((outputs > 0) == (targets > 0.5)) & outputs.isfinite()

    def unlikely_targets(self, outputs: Tensor) -> Tensor:
        """The other value of each label."""
        return (outputs <= 0).to(outputs.dtype)


@dataclass(frozen=True, kw_only=True)
class NextToken(Loss):
    """The mean cross-entropy over a text's own next tokens; positions whose target is `IGNORED` do not count.

    Outputs [n, words, length] are logits, targets [n, length] are the token numbers that follow. A text's loss is
    divided by its own number of targets, so its gradient is a function of this text alone, and is bounded as a whole.
    The loss of a text without targets (fewer than two tokens) is 0. The quality of a text is the share of its next
    tokens that the model finds most likely, and 0 without targets.
    """

    labels: ClassVar[str] = "int64"
    quality_name: ClassVar[str] = "next-token accuracy"
    per_position: ClassVar[bool] = True

    def check(self, classes: int) -> None:
        """Refuse fewer than two words."""
        if classes < 2:
            raise ValueError(f"Expected dataset.classes={classes} >= 2 with loss=next_token.")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all texts."""
        from torch.nn import functional

        losses = functional.cross_entropy(outputs, targets, ignore_index=IGNORED, reduction="none")
        return (losses.sum(dim=1) / _target_counts_per_text(targets)).sum()

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(softmax(outputs) - one_hot(targets)) / number of targets, and 0 at ignored positions."""
        targets = targets.expand(len(outputs), *outputs.shape[2:])
        counted = (targets != IGNORED)[:, None]
        probabilities = outputs.softmax(dim=1)
        right = targets.clamp(min=0)[:, None]
        differences = probabilities.scatter_add(1, right, probabilities.new_full((), -1.0).expand(right.shape))
        return differences.where(counted, 0.0) / _target_counts_per_text(targets)[:, None, None]

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The share of next tokens that are the most likely word."""
        right = (outputs.argmax(dim=1) == targets) & outputs.isfinite().all(dim=1)
        return right.sum(dim=1).to(outputs.dtype) / _target_counts_per_text(targets)

    def unlikely_targets(self, outputs: Tensor) -> Tensor:
        """The least likely words, at every position."""
        return outputs.argmin(dim=1)


def _target_counts_per_text(targets: Tensor) -> Tensor:
    """The number of targets of each text [n], 1 where there is none."""
    return (targets != IGNORED).sum(dim=1).clamp(min=1)


def require_loss_of_each_example_alone(loss: Loss, *output_shape: int) -> None:
    """Raises ValueError unless a user's own loss takes each example on its own, for random outputs of this shape.

    *Guarantee*: a gradient or a quality that depends on other examples would change with them by more than the bound
    that is charged. So both are compared with those of each example alone; the gradient also as runs that are trained
    together ask for it, of outputs [runs, classes, n] with targets [n].
    """
    if not is_of_users_own_class(loss):
        return
    kind = type(loss)
    contract = (
        f"Expected loss={kind.__module__}.{kind.__name__} to keep the contract of {Loss.__module__}.Loss: the loss is "
        "the sum over examples, and an example's loss, gradient, and quality in [0, 1] depend on its own outputs and "
        "target alone, in outputs [n, classes] and [runs, classes, n]."
    )
    try:
        mistake = _difference_from_each_example_alone(loss, output_shape)
    except Exception as error:  # the user's own code may raise anything
        raise ValueError(f"{contract} {type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}.") from error
    if mistake:
        raise ValueError(f"{contract} Got {mistake}.")


def _difference_from_each_example_alone(loss: Loss, output_shape: Sequence[int]) -> str:
    """Which result of the loss differs for examples in a batch and alone; empty if none does."""
    import torch

    generator = torch.Generator().manual_seed(0)
    for scale in (1.0, 10.0):
        outputs = scale * torch.randn(4, *output_shape, generator=generator, dtype=torch.float64)
        targets = loss.unlikely_targets(outputs)
        singles = [(outputs[row : row + 1].clone().requires_grad_(), targets[row : row + 1]) for row in range(4)]
        losses = [loss(*single) for single in singles]
        gradient = torch.cat([torch.autograd.grad(one, own)[0] for one, (own, _) in zip(losses, singles, strict=True)])
        quality = torch.cat([loss.quality(own.detach(), target) for own, target in singles])
        pairs = {
            "the loss": (loss(outputs, targets), torch.stack(losses).sum().detach()),
            "the gradient": (loss.gradient(outputs, targets), gradient),
            "the quality": (loss.quality(outputs, targets), quality),
        }
        if outputs.ndim == 2 and not loss.several_labels:
            runs = outputs.T.expand(2, -1, -1).clone()
            pairs["the gradient of several runs"] = loss.gradient(runs, targets), gradient.T.expand(2, -1, -1)
        for name, (together, alone) in pairs.items():
            if together.shape != alone.shape or not torch.allclose(together, alone.to(together), rtol=1e-6, atol=1e-9):
                return f"{name} of a batch unlike that of its examples alone"
        if not ((quality >= 0) & (quality <= 1)).all():
            return "a quality outside [0, 1]"
    return ""


def target_shape(loss: Loss, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of a model's outputs behind the classes, for inputs of this shape: its positions, or none."""
    return tuple(shape) if loss.per_position else ()


def label_shape(loss: Loss, shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    """The shape of the labels of one record: one for each position or for each output, or a single one."""
    return (classes,) if loss.several_labels else target_shape(loss, shape)


def check_labels_fit_loss(loss: Loss, dataset: DataSet) -> None:
    """Raises ValueError unless the data set's labels are the loss's targets: one or several, or one a position."""
    name = dataset.name
    if dataset.label_names and not loss.several_labels:
        raise ValueError(
            f"Expected loss=binary_cross_entropy with dataset.name={name}, whose records have several labels each."
        )
    if loss.several_labels and not dataset.label_names:
        raise ValueError(
            f"Expected dataset.name={name} to have several labels per record with loss=binary_cross_entropy, as "
            "dataset=table has them with a list as dataset.label; its records have one label each."
        )
    if dataset.per_position and not loss.per_position:
        raise ValueError(
            f"Expected loss=next_token with dataset.name={name}: its records are token sequences, without a label each."
        )
    if loss.per_position and not dataset.per_position:
        raise ValueError(
            f"Expected dataset.name={name} to have token sequences as records with loss=next_token, as "
            "dataset=text_sequences has them; its records have one label each."
        )
