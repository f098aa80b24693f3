"""Predictions that a script hands over: their form is checked, and nothing else about them is believed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-3
"""How far a row of probabilities may be from adding up to 1: float16 and large tables round by less."""


def checked(predictions: NDArray[Any], records: int, classes: int) -> NDArray[Any]:
    """The predictions, if they are classes [records], probabilities [records, classes], or numbers [records].

    Numbers are for `classes` 1, where a label is a number. Raises ValueError, in one sentence, for anything else.
    """
    shape, kind = predictions.shape, predictions.dtype.kind
    if classes == 1:
        if shape != (records,) or kind != "f" or not np.isfinite(predictions).all():
            raise ValueError(_expected(predictions, f"finite floating-point numbers [{records}]"))
        return predictions.astype(np.float32)
    if kind in "iu" and shape == (records,):
        if records and not (predictions.min() >= 0 and predictions.max() < classes):
            raise ValueError(_expected(predictions, f"classes from 0 to {classes - 1}"))
        return predictions.astype(np.int64)
    if kind == "f" and shape == (records, classes):
        table = predictions.astype(np.float64)
        if not np.isfinite(table).all() or (table < 0).any() or (abs(table.sum(axis=1) - 1) > TOLERANCE).any():
            raise ValueError(_expected(predictions, "probabilities that add up to 1 in each row"))
        return table
    raise ValueError(_expected(predictions, f"classes [{records}] or probabilities [{records}, {classes}]"))


def _expected(predictions: NDArray[Any], what: str) -> str:
    return f"Expected predictions={predictions.dtype} {list(predictions.shape)} to be {what}."
