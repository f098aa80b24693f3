"""The interface of frozen extractors, which turn a record's input into features before any training.

The account does not cover the data that an extractor was trained on: `trained_on` declares them public. Its weights
never change, so a guarantee for a model that is trained on the features is a guarantee for the records. That holds only
if the features of a record are a function of this record alone (`trainers/features/cache.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dpsweep.accounting.validation import positive

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


class Extractor(Protocol):
    """A declared extractor; building it reads no file and does not import torch."""

    @property
    def size(self) -> int:
        """The number of features of a record."""
        ...

    @property
    def norm(self) -> float:
        """The Euclidean norm that every row of features is scaled to: a public constant."""
        ...

    @property
    def fallback(self) -> str:
        """A sentence on what runs without the extractor."""
        ...

    @property
    def trained_on(self) -> str:
        """The public data that the weights were trained on."""
        ...

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
        ...


def check_extractor_settings(extractor: Extractor) -> None:
    """Refuse invalid settings that all extractors have."""
    positive("features.norm", extractor.norm)
    if not isinstance(extractor.trained_on, str) or not extractor.trained_on.strip():
        raise ValueError(f"Expected features.trained_on={extractor.trained_on!r} to name the public training data.")
