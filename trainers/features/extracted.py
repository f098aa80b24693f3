"""A data set whose inputs are frozen features of its records."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.interface import DataSet
from dpsweep.trainers.data.records import DIGEST_BYTES
from dpsweep.trainers.features.interface import InputForm

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.features.cache import FeatureCache
    from dpsweep.trainers.features.interface import Extractor

ROWS = 250
"""The number of records of a file of features."""

SUFFIX = ".safetensors"

NEEDED = ("weights", "size", "norm", "trained_on", "fallback")
"""What pages and releases say of an extractor, which is a dataclass with these fields, the last one apart."""


_KEPT = (
    *("name", "records", "test_records", "classes", "unit", "unit_column", "units", "contribution_cap"),
    *("public", "left_out", "is_local", "on_disk", "target", "target_unit", "label_names"),
)
"""The members of a data set that its frozen features have too."""


@dataclass(frozen=True, kw_only=True)
class Extracted(DataSet):
    """The records of a data set, with an extractor's features as inputs: the same units, labels, account and split."""

    of: DataSet
    extractor: Extractor

    def __post_init__(self) -> None:
        if self.of.per_position:
            raise ValueError(
                f"Expected features=none with dataset.name={self.of.name}, whose records are token sequences."
            )
        if missing := [name for name in NEEDED if not hasattr(self.extractor, name)]:
            raise ValueError(
                f"Expected features={self.extractor_class_name} to have {', '.join(missing)}, as an extractor has."
            )
        self.extractor.check(self.input_form)
        for name in _KEPT:
            object.__setattr__(self, name, getattr(self.of, name))
        object.__setattr__(self, "shape", (self.extractor.size,))

    @property
    def is_generated(self) -> bool:
        """Whether the records that the features are computed of are generated."""
        return self.of.is_generated

    @property
    def input_form(self) -> InputForm:
        """The data set's inputs, which the extractor reads."""
        return InputForm(shape=tuple(self.of.shape), preprocessing=self.of.preprocessing)

    @property
    def extractor_class_name(self) -> str:
        """The extractor's class, for messages."""
        return type(self.extractor).__name__

    @property
    def feature_identity_text(self) -> str:
        """The text that determines the features of a stored record: the extractor's settings and the form of inputs."""
        settings = asdict(self.extractor)  # type: ignore[call-overload]
        return json.dumps([self.extractor_class_name, settings, asdict(self.input_form)], sort_keys=True, default=dict)

    def features_folder(self, root: Path) -> Path:
        """The folder of these features, below the folder of all features."""
        return root / sha256(self.feature_identity_text.encode()).hexdigest()[:16]

    def estimated_records_to_compute(self, root: Path) -> int:
        """About how many records' features are still to be computed, by the number of files in the folder."""
        files = sum(not path.name.startswith("probes") for path in self.features_folder(root).glob(f"*{SUFFIX}"))
        return max(0, self.of.records + self.of.test_records - ROWS * files)

    def extractor_module(self) -> nn.Module:
        """The extractor with its weights: inputs [n, *form.shape] to features [n, size]."""
        return self.extractor.module(self.input_form)

    def locate(self, folder: Path | None) -> None:
        """Find the extractor's weights and the data set's files."""
        try:
            self.extractor.locate()
        except ValueError as cause:
            raise BadInput(f"{cause} {self.extractor.fallback}") from cause
        self.of.locate(folder)

    def missing_files(self, folder: Path | None) -> str:
        """Those of the data set."""
        return self.of.missing_files(folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """The contents of the data set's files, checked; features are not another data set."""
        return self.of.verify(folder)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The records as the data set stores them; `replace_inputs_by_features` computes their features."""
        return self.of.load(folder)

    def verify_with_cache(self, folder: Path | None, cache: Path | None) -> tuple[Content, ...]:
        """Does what the data set does."""
        return self.of.verify_with_cache(folder, cache)

    def load_with_cache(self, folder: Path | None, cache: Path | None) -> tuple[Records, Records | None]:
        """Does what the data set does."""
        return self.of.load_with_cache(folder, cache)

    def least_bytes_in_job(self, folder: Path | None) -> int:
        """Those of the data set or of its features, whichever are more: records are let go once features are there."""
        held = 0 if self.of.on_disk else 4 * self.extractor.size
        return max(self.of.least_bytes_in_job(folder), (held + DIGEST_BYTES) * self.of.records)

    def replace_inputs_by_features(self, records: Records, cache: FeatureCache) -> Records:
        """The same records with features as inputs, float32 [n, size], each row of norm `extractor.norm`.

        A record's part of a split is still decided by its stored contents, so it is the same on every machine, though
        features differ in their last digits.
        """
        from dpsweep.trainers.data.records import Scaling

        digests = records.digest_of_each_record()
        features = cache.load_or_compute_features(self, records, digests)
        return replace(records, features=features, scaling=Scaling(), stored=digests)
