"""Predictions in the place of a model, so that every score measures them by the code with which it measures models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpsweep.trainers.data.records import Records, Scaling

MOST = 2**24
"""The first whole number without a neighbour in float32, in which the numbers of rows are inputs."""

_LEAST = 1e-30


class LookedUp(nn.Module):
    """The outputs of a model by the number of the record: logits [n, classes], numbers [n, 1], or log-odds [n, labels].

    An output depends on the number of its record alone, so a score's guarantee is as good as that of the predictions:
    that each depends on one record and on nothing else private is the script's declaration.
    """

    outputs: Tensor

    def __init__(self, predictions: NDArray[Any], classes: int, *, several_labels: bool = False) -> None:
        super().__init__()
        if several_labels:
            known = torch.from_numpy(np.vstack([predictions, np.zeros((1, classes))]))
            odds = known.clamp(min=_LEAST).log() - (1 - known).clamp(min=_LEAST).log()
            self.register_buffer("outputs", odds.float())
            return
        table = torch.zeros(len(predictions) + 1, classes)  # the last row for the blank record that counts the outputs
        if predictions.dtype.kind == "i":
            table[np.arange(len(predictions)), predictions] = 1.0
        else:
            table[:-1] = torch.from_numpy(predictions.reshape(len(predictions), classes))
        self.register_buffer("outputs", table.clamp(min=_LEAST).log() if classes > 1 else table)

    def forward(self, rows: Tensor) -> Tensor:
        """The outputs [k, classes] of the records with these numbers [k, 1]."""
        return self.outputs[rows[:, 0].long().clamp(max=len(self.outputs) - 1)]


def records_with_row_numbers(records: Records) -> Records:
    """The same records, labels and units, with the number of the row in the place of the features."""
    if len(records) >= MOST:
        raise ValueError(f"Expected records={len(records)} < {MOST} to be scored.")
    rows = torch.arange(len(records), dtype=torch.float32)[:, None]
    return replace(records, features=rows, scaling=Scaling(), stored=None)
