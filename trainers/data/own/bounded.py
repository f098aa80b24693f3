"""Arrays of the user, turned into records by public constants alone: clamped to bounds, scaled to [0, 1].

An error message names the index of the first record that is wrong.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.records import Records, Scaling

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsweep.trainers.data.own.columns import Bounds

_BYTE = 255
_ROWS = 4096


def check_features(features: NDArray[np.generic], shape: tuple[int, ...], where: str) -> None:
    """Refuse anything but finite real numbers [n, *shape]."""
    if features.dtype.kind not in "biuf":
        raise BadInput(f"Expected {where} to hold real numbers, got {features.dtype}.")
    if features.ndim == 0 or features.shape[1:] != shape:
        raise BadInput(f"Expected {where} of shape [n, {', '.join(map(str, shape))}], got {list(features.shape)}.")
    for start in range(0, len(features) if features.dtype.kind == "f" else 0, _ROWS):
        finite = np.isfinite(features[start : start + _ROWS]).reshape(-1, int(np.prod(shape))).all(axis=1)
        if not finite.all():
            raise BadInput(f"Expected {where} to be finite numbers, got another at index {start + finite.argmin()}.")


def check_labels(labels: NDArray[np.generic], records: int, classes: int, where: str) -> None:
    """Refuse anything but whole numbers [n] in 0..classes-1."""
    if labels.dtype.kind not in "biu":
        raise BadInput(f"Expected {where} to hold whole numbers, got {labels.dtype}.")
    if labels.shape != (records,):
        raise BadInput(f"Expected {where} of shape [{records}], as many as features, got {list(labels.shape)}.")
    wrong = (labels < 0) | (labels >= classes)  # type: ignore[operator]
    if wrong.any():
        first = int(wrong.argmax())
        raise BadInput(f"Expected {where} in 0..{classes - 1}, got {labels[first]} at index {first}.")


def identifiers_of(units: NDArray[np.generic], records: int, where: str) -> list[bytes]:
    """The units that texts or whole numbers [n] identify, one for each record; an empty text is refused."""
    if units.dtype.kind not in "iuU":
        raise BadInput(f"Expected {where} to hold texts or whole numbers, got {units.dtype}.")
    if units.shape != (records,):
        raise BadInput(f"Expected {where} of shape [{records}], as many as features, got {list(units.shape)}.")
    texts = [str(unit).strip() for unit in units.tolist()]
    if "" in texts:
        raise BadInput(f"Expected {where} to say whose record it is, got nothing at index {texts.index('')}.")
    return [text.encode("utf-8", "surrogateescape") for text in texts]


def content_of(features: NDArray[np.generic]) -> Content:
    """The content that identifies a data set: its features alone, since other labels are about the same people."""
    stored = features.dtype.newbyteorder("<")
    rows = (features[start : start + _ROWS] for start in range(0, len(features), _ROWS))
    kind = f"{stored.str} {features.shape}".encode()
    return Content.of(itertools.chain((kind,), (block.astype(stored).tobytes() for block in rows)))


def bounded_records(features: NDArray[np.generic], labels: NDArray[np.generic], bounds: Bounds) -> Records:
    """Checked features, clamped to public `bounds` and scaled to [0, 1], and their labels.

    Bytes are stored unchanged, in a quarter of the memory, if the bounds include 0 and 255.
    """
    import torch

    low, high = bounds
    if features.dtype == np.uint8 and low <= 0 and high >= _BYTE:
        stored, scaling = features, Scaling(scale=high - low, mean=low / (high - low))
    else:
        stored, scaling = np.empty(features.shape, dtype=np.float32), Scaling()
        for start in range(0, len(features), _ROWS):
            rows = slice(start, start + _ROWS)
            stored[rows] = (np.clip(features[rows].astype(np.float64), low, high) - low) / (high - low)
    return Records(
        features=torch.from_numpy(np.ascontiguousarray(stored)),
        labels=torch.from_numpy(labels.astype(np.int64)),
        scaling=scaling,
    )
