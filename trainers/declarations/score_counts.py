"""Counts of what a model predicts: a unit changes them by at most 1 in norm, however many records it has."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.trainers.declarations.losses import CROSS_ENTROPY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.declarations.losses import Loss
    from dpsweep.trainers.declarations.metrics import Metric

_CHUNK = 256
"""Records of a pass, whatever their number: float32 kernels of other shapes round the other records otherwise."""


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
    shares = records.shares(qualities(model, records, device, loss, order))
    return np.array([shares.sum(), (1 - shares).sum()])


def table(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    metric: Metric,
    order: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """The metric's table [cells] of the units: one of several records adds the share of its records to each cell.

    Guarantee: one unit changes the table by at most 1 in norm, however many records it has, and its size never. A
    random `order` [n] serves as in `right_and_wrong`.
    """
    cells = _of_each(model, records, device, metric.cells, order).astype(np.int64)
    size = metric.size(_classes(model, records, device))
    return np.bincount(cells, weights=records.weights, minlength=size).astype(np.float64)


def qualities(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    loss: Loss,
    order: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """How good the model is on each record [n], each judged on its own."""
    return _of_each(model, records, device, loss.quality, order)


def _classes(model: nn.Module, records: Records, device: torch.device | str) -> int:
    """The number of the model's outputs, of a record that is made up, so that no record is needed to tell."""
    import torch

    blank = torch.zeros((1, *records.features.shape[1:]), dtype=torch.float32, device=device)
    with _judged(model):
        return int(model(blank).shape[1])


def _of_each(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    judge: Callable[[Tensor, Tensor], Tensor],
    order: NDArray[np.int64] | None,
) -> NDArray[np.float64]:
    """What `judge` says of each record's outputs and target [n], in passes of one shape."""
    places = np.arange(len(records)) if order is None else order
    judged = np.zeros(len(records))
    with _judged(model):
        for start in range(0, len(records), _CHUNK):
            part = places[start : start + _CHUNK]
            filled = np.pad(part, (0, _CHUNK - len(part)), mode="edge")
            one = judge(model(records.inputs(filled, device)), records.targets(filled, device))
            judged[part] = one.cpu().numpy()[: len(part)]
    return judged


@contextmanager
def _judged(model: nn.Module) -> Iterator[None]:
    """The model as it is when it predicts, without gradients, and afterwards in the mode that it was in."""
    import torch

    training = model.training
    model.eval()
    with torch.no_grad():
        yield
    model.train(training)
