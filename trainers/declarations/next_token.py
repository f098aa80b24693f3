"""The loss of causal language models: each token is predicted from the tokens before it. It imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpsweep.trainers.data.records import IGNORED

if TYPE_CHECKING:
    from torch import Tensor

    from dpsweep.trainers.data.interface import DataSet
    from dpsweep.trainers.declarations.losses import Loss


@dataclass(frozen=True, kw_only=True)
class NextToken:
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
        return (losses.sum(dim=1) / _numbers(targets)).sum()

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(softmax(outputs) - one_hot(targets)) / number of targets, and 0 at ignored positions."""
        targets = targets.expand(len(outputs), *outputs.shape[2:])
        counted = (targets != IGNORED)[:, None]
        probabilities = outputs.softmax(dim=1)
        right = targets.clamp(min=0)[:, None]
        differences = probabilities.scatter_add(1, right, probabilities.new_full((), -1.0).expand(right.shape))
        return differences.where(counted, 0.0) / _numbers(targets)[:, None, None]

    def quality(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The share of next tokens that are the most likely word."""
        right = (outputs.argmax(dim=1) == targets) & outputs.isfinite().all(dim=1)
        return right.sum(dim=1).to(outputs.dtype) / _numbers(targets)

    def unlikely(self, outputs: Tensor) -> Tensor:
        """The least likely words, at every position."""
        return outputs.argmin(dim=1)


def _numbers(targets: Tensor) -> Tensor:
    """The number of targets of each text [n], 1 where there is none."""
    return (targets != IGNORED).sum(dim=1).clamp(min=1)


def target_shape(loss: Loss, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one example's target for inputs of this shape: one for each position, or a single one."""
    return tuple(shape) if per_position(loss) else ()


def per_position(part: object) -> bool:
    """Whether a loss, or a data set, has a target for each position of an input; False where it does not say."""
    return bool(getattr(part, "per_position", False))


def check_targets(loss: Loss, dataset: DataSet) -> None:
    """Raises ValueError unless the data set's labels are the loss's targets: one a record, or one a position."""
    name = dataset.name
    if per_position(dataset) and not per_position(loss):
        raise ValueError(
            f"Expected loss=next_token with dataset.name={name}: its records are token sequences, without a label each."
        )
    if per_position(loss) and not per_position(dataset):
        raise ValueError(
            f"Expected dataset.name={name} to have token sequences as records with loss=next_token, as "
            "dataset=text_sequences has them; its records have one label each."
        )
