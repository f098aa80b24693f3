"""The interface of frozen extractors, which turn a record's input into features before any training.

The account does not cover the data that an extractor was trained on: `trained_on` declares them public. Its weights
never change, so a guarantee for a model that is trained on the features is a guarantee for the records. That holds only
if the features of a record are a function of this record alone (`trainers/features/cache.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dpsweep.accounting.codec import positive

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """The inputs that a data set declares: their shape, and its `preprocessing`, None if it states none."""

    shape: tuple[int, ...]
    preprocessing: Mapping[str, Any] | None

    @property
    def raw_record_kind(self) -> str | None:
        """The kind of a raw record: `array`, `tokens`, ... (`trainers/data/preprocessing.py`)."""
        return None if self.preprocessing is None else str(self.preprocessing["kind"])

    @property
    def input_range(self) -> tuple[float, float]:
        """The lowest and the highest number of an array: of its declared bounds, or of bytes, after its scaling.

        >>> pixels = {"kind": "array", "bounds": None, "scale": 255.0, "mean": 0.5, "std": 0.5}
        >>> InputForm(shape=(3, 32, 32), preprocessing=pixels).input_range
        (-1.0, 1.0)
        """
        declared = self.preprocessing or {}
        low, high = declared["bounds"] or (0.0, 255.0)
        scale, mean, std = (float(declared[name]) for name in ("scale", "mean", "std"))
        return (low / scale - mean) / std, (high / scale - mean) / std


class Extractor(Protocol):
    """A declared extractor; building it reads no file and does not import torch."""

    @property
    def size(self) -> int:
        """The number of features of a record; None before planning, if the extractor has `settings_from_shape`."""

    @property
    def norm(self) -> float:
        """The Euclidean norm that every row of features is scaled to: a public constant."""

    @property
    def fallback(self) -> str:
        """A sentence on what runs without the extractor."""

    @property
    def trained_on(self) -> str | None:
        """The public data that the weights were trained on; None if there are no weights."""

    def check(self, form: InputForm) -> None:
        """Refuse inputs that the extractor cannot read.

        Errors: ValueError, one sentence.
        """

    def locate(self) -> None:
        """Find the weights and compare their checksum.

        Errors: ValueError, one sentence.
        """

    def module(self, form: InputForm) -> nn.Module:
        """The extractor with its weights, in evaluation mode: inputs [n, *form.shape] to features [n, size]."""


@runtime_checkable
class ExtractorWithFacts(Protocol):
    """An extractor whose settings of value None planning fills in; it may read its own public files, no record."""

    def settings_from_shape(self, shape: tuple[int, ...]) -> Mapping[str, object]:
        """The settings for inputs of this shape, by name.

        Errors: ValueError or `BadInput`, one sentence.
        """


def check_extractor_settings(extractor: Extractor) -> None:
    """Refuse invalid settings that all extractors have."""
    positive("features.norm", extractor.norm)
    if not isinstance(extractor.trained_on, str) or not extractor.trained_on.strip():
        raise ValueError(f"Expected features.trained_on={extractor.trained_on!r} to name the public training data.")
