"""Counts of right and wrong predictions with L2 sensitivity 1 per unit, for any number of records in a unit."""

from __future__ import annotations

import math
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
"""The fixed batch size of a forward pass: float32 kernels may round a record differently in another batch shape."""

_FLOATS = 2**26
"""The most outputs of a forward pass, where an example has outputs for each position."""


def right_and_wrong(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    loss: Loss = CROSS_ENTROPY,
    order: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """The pair of counts [2] of right and wrong units; each unit adds q and 1 - q, where q is its mean quality.

    Guarantee: one unit changes the pair by at most 1 in L2 norm, for any number of records. Kernels may round a record
    differently at another position in a batch. With a random `order` [n] of the records, an added unit changes the
    positions of as many other records as it has records itself; without it, of all records that follow.
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
    """The metric's table [cells]; a unit of several records adds to each cell the share of its records there.

    Guarantee: one unit changes the table by at most 1 in L2 norm, for any number of records, and never changes its
    size. For the random `order` [n] see `right_and_wrong`.
    """
    cells = _values(model, records, device, metric.cells, order).astype(np.int64)
    size = metric.size(_classes(model, records, device))
    return np.bincount(cells, weights=records.weights, minlength=size).astype(np.float64)


def qualities(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    loss: Loss,
    order: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """The quality of the model's output for each record [n]."""
    return _values(model, records, device, loss.quality, order)


def rows_at_once(model: nn.Module, records: Records, device: torch.device | str, most: int) -> int:
    """The number of records in a forward pass: `most`, or fewer if each has outputs for many positions.

    It depends on the model and on the records' shape alone.
    """
    if records.labels.ndim == 1:
        return most
    outputs = _classes(model, records, device) * math.prod(records.labels.shape[1:])
    return max(1, min(most, _FLOATS // outputs))


def _classes(model: nn.Module, records: Records, device: torch.device | str) -> int:
    """The number of the model's outputs, measured on an all-zero record, so that no real record is needed."""
    import torch

    blank = torch.zeros((1, *records.features.shape[1:]), dtype=torch.float32, device=device)
    with _evaluation_mode(model):
        return int(model(blank).shape[1])


def _values(
    model: nn.Module,
    records: Records,
    device: torch.device | str,
    function: Callable[[Tensor, Tensor], Tensor],
    order: NDArray[np.int64] | None,
) -> NDArray[np.float64]:
    """The value of `function` on each record's outputs and target [n], in passes of a fixed batch shape."""
    places = np.arange(len(records)) if order is None else order
    values = np.zeros(len(records))
    size = rows_at_once(model, records, device, _CHUNK)
    with _evaluation_mode(model):
        for start in range(0, len(records), size):
            part = places[start : start + size]
            filled = np.pad(part, (0, size - len(part)), mode="edge")
            chunk = function(model(records.inputs(filled, device)), records.targets(filled, device))
            values[part] = chunk.cpu().numpy()[: len(part)]
    return values


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, without gradients; restores the previous mode at the end."""
    import torch

    training = model.training
    model.eval()
    with torch.no_grad():
        yield
    model.train(training)
