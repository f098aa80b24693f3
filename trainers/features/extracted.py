"""A data set whose inputs are frozen features of its records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.interface import is_public, unit_column
from dpsweep.trainers.declarations.next_token import per_position
from dpsweep.trainers.features.interface import InputForm

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.interface import DataSet
    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.features.cache import FeatureCache
    from dpsweep.trainers.features.interface import Extractor

ROWS = 250
"""The number of records of a file of features."""

SUFFIX = ".safetensors"


@dataclass(frozen=True, kw_only=True)
class Extracted:
    """The records of a data set, with an extractor's features as inputs: the same units, labels, account and split."""

    of: DataSet
    extractor: Extractor

    def __post_init__(self) -> None:
        if per_position(self.of):
            raise ValueError(
                f"Expected features=none with dataset.name={self.of.name}, whose records are token sequences."
            )
        self.extractor.check(self.form)

    @property
    def form(self) -> InputForm:
        """The data set's inputs, which the extractor reads."""
        preprocessing = getattr(self.of, "preprocessing", None)
        return InputForm(
            shape=tuple(self.of.shape), preprocessing=preprocessing if isinstance(preprocessing, Mapping) else None
        )

    @property
    def label(self) -> str:
        """The extractor's class, for messages."""
        return type(self.extractor).__name__

    @property
    def identity(self) -> str:
        """The text that determines the features of a stored record: the extractor's settings and the form of inputs."""
        settings = asdict(self.extractor)  # type: ignore[call-overload]
        return json.dumps([self.label, settings, asdict(self.form)], sort_keys=True, default=dict)

    def folder(self, root: Path) -> Path:
        """The folder of these features, below the folder of all features."""
        return root / sha256(self.identity.encode()).hexdigest()[:16]

    def missing(self, root: Path) -> int:
        """About how many records' features are still to be computed, by the number of files in the folder."""
        files = sum(not path.name.startswith("probes") for path in self.folder(root).glob(f"*{SUFFIX}"))
        return max(0, self.records + self.test_records - ROWS * files)

    def module(self) -> nn.Module:
        """The extractor with its weights: inputs [n, *form.shape] to features [n, size]."""
        return self.extractor.module(self.form)

    @property
    def name(self) -> str:
        """The data set's name."""
        return self.of.name

    @property
    def records(self) -> int:
        """The data set's nominal number of private records."""
        return self.of.records

    @property
    def test_records(self) -> int:
        """The data set's nominal number of public test records."""
        return self.of.test_records

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of features."""
        return (self.extractor.size,)

    @property
    def classes(self) -> int:
        """The data set's number of labels."""
        return self.of.classes

    @property
    def unit(self) -> str:
        """The data set's unit."""
        return self.of.unit

    @property
    def public(self) -> bool:
        """Whether the data set's records were declared public."""
        return is_public(self.of)

    @property
    def unit_column(self) -> str | None:
        """The data set's column of units."""
        return unit_column(self.of)

    @property
    def units(self) -> int | None:
        """The data set's nominal number of units."""
        return getattr(self.of, "units", None)

    @property
    def contribution_cap(self) -> int | None:
        """The data set's largest number of records of a unit."""
        return getattr(self.of, "contribution_cap", None)

    @property
    def file(self) -> str | None:
        """The user's own file, if the data set has one."""
        return getattr(self.of, "file", None)

    def locate(self, folder: Path | None) -> None:
        """Find the extractor's weights and the data set's files."""
        try:
            self.extractor.locate()
        except ValueError as cause:
            raise BadInput(f"{cause} {self.extractor.fallback}") from cause
        self.of.locate(folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """The contents of the data set's files, checked; features are not another data set."""
        return self.of.verify(folder)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The records as the data set stores them; `extract` computes their features."""
        return self.of.load(folder)

    def extract(self, records: Records, cache: FeatureCache) -> Records:
        """The same records with features as inputs, float32 [n, size], each row of norm `extractor.norm`.

        A record's part of a split is still decided by its stored contents, so it is the same on every machine, though
        features differ in their last digits.
        """
        from dpsweep.trainers.data.records import Scaling

        digests = records.digests()
        features = cache.features(self, records, digests)
        return replace(records, features=features, scaling=Scaling(), stored=digests)
