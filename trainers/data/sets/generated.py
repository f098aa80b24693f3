"""Generated records: those of a rehearsal in place of real ones, and a synthetic linear regression.

Invariant of a rehearsal: every record is a function of its declaration alone, so no file of the real data set is ever
opened. The records of the regression, which has known true weights, come from a public seed; they are treated as
private and charged like real ones, so that a trial here runs as it would on real records.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.codec import non_negative
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.interface import Declared, DeclaredUnits
from dpsweep.trainers.data.preprocessing import preprocessing_form_of_array, preprocessing_form_of_labelled_tokens
from dpsweep.trainers.data.records import Records, Scaling, next_token_targets

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.vocabularies import Vocabulary


LARGEST = 255
NO_TOKEN = -1
"""No token number: generated texts have no padding."""

_ROWS = 4096
_STDS = 6.0
"""The standard deviations of numbers as labels that the declared range of a target spans."""


@dataclass(frozen=True, kw_only=True)
class Generated(DeclaredUnits):
    """Records whose inputs are half noise and half a pattern of their class, so that training learns something.

    With a `vocabulary`, inputs are token numbers; with `per_position`, labels are the next tokens; with one class,
    labels are numbers, a linear function of the inputs, in [0, 1] with a `target`;
    with `label_names` each record has a label for each class, and that of its class is 1.
    Unit i has the records i, i + units, i + 2 units, ...
    Shapes: features uint8 [n, *shape], scaled to [0, 1], or float32 [n, length] of token numbers.
    """

    vocabulary: Vocabulary | None = None
    per_position: bool = False
    # added later: a declaration without them has the content that it had before
    target: tuple[float, float] | None = None
    target_unit: str = ""
    label_names: tuple[str, ...] = ()

    @property
    def is_generated(self) -> bool:
        """True."""
        return True

    @property
    def caution(self) -> str:
        """The sentence that every page of a rehearsal and its price show."""
        return "A REHEARSAL on generated records: no real record is read, and no real budget is charged."

    @property
    def preprocessing(self) -> Form:
        """The form of generated records, which frozen extractors read."""
        if self.vocabulary is not None:
            return preprocessing_form_of_labelled_tokens(self.vocabulary, self.shape[0], ())
        return preprocessing_form_of_array(self.shape, Scaling(scale=LARGEST))

    def locate(self, folder: Path | None) -> None:
        """Find the vocabulary, which is public; there are no other files."""
        if self.vocabulary is not None:
            self.vocabulary.check_vocabulary_file()

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """The content of the declaration, which determines the records."""
        declared = asdict(self)
        if self.target is None:
            declared = {name: value for name, value in declared.items() if name not in ("target", "target_unit")}
        if not self.label_names:
            del declared["label_names"]
        return (Content.from_chunks((json.dumps(declared, sort_keys=True, default=str).encode(),)),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The records, generated again; the same on every machine."""
        rng = np.random.Generator(np.random.PCG64(0))
        patterns = (
            rng.integers(0, LARGEST + 1, (self.classes, *self.shape), np.uint8) if self._has_class_patterns else None
        )
        private = self._generate_records(rng, self.records, patterns)
        if self.units is not None:
            private = self.in_units(private, [str(record % self.units).encode() for record in range(self.records)])
        return private, self._generate_records(rng, self.test_records, patterns) if self.test_records else None

    @property
    def _has_class_patterns(self) -> bool:
        return self.vocabulary is None and self.classes > 1

    def _generate_records(self, rng: np.random.Generator, count: int, patterns: NDArray[np.uint8] | None) -> Records:
        import torch

        classes = rng.integers(0, self.classes, count)
        if self.vocabulary is not None:
            alike = 1 if self.per_position else self.classes  # where labels are classes, each has tokens of its own
            tokens = _generate_tokens_of_classes(rng, classes, self.shape[0], self.vocabulary.words, alike)
            labels = torch.from_numpy(next_token_targets(tokens, NO_TOKEN) if self.per_position else classes)
            return Records(features=torch.from_numpy(tokens), labels=labels)
        features = rng.integers(0, LARGEST + 1, (count, *self.shape), dtype=np.uint8)
        if patterns is not None:
            for start in range(0, count, _ROWS):
                rows = slice(start, start + _ROWS)
                features[rows] = features[rows] // 2 + patterns[classes[rows]] // 2
        if self.label_names:
            labels = torch.nn.functional.one_hot(torch.from_numpy(classes), self.classes).float()
        else:
            labels = torch.from_numpy(self._number_labels(features) if patterns is None else classes)
        return Records(features=torch.from_numpy(features), labels=labels, scaling=Scaling(scale=LARGEST))

    def _number_labels(self, features: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The labels of records whose labels are numbers; those of a range lie in it, as scaled targets do."""
        numbers = _number_labels_from_features(features)
        return numbers if self.target is None else np.clip(0.5 + numbers / _STDS, 0.0, 1.0)


def _generate_tokens_of_classes(
    rng: np.random.Generator, classes: NDArray[np.int64], length: int, words: int, alike: int
) -> NDArray[np.float32]:
    """Token numbers below `words`, float32 [n, length]; those of a class are equal to it modulo `alike`."""
    numbers = rng.integers(0, max(1, words // alike), (len(classes), length)) * alike + (classes % alike)[:, None]
    tokens: NDArray[np.float32] = np.minimum(numbers, words - 1).astype(np.float32)
    return tokens


def _number_labels_from_features(features: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The sum of each record's inputs with alternating signs, scaled to about unit variance, float32 [n]."""
    rows = features.reshape(len(features), -1)
    signs = np.where(np.arange(rows.shape[1]) % 2, -1.0, 1.0)
    std = LARGEST * np.sqrt(rows.shape[1] / 12)
    sums = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), _ROWS):
        sums[start : start + _ROWS] = rows[start : start + _ROWS] @ signs / std
    return sums


@dataclass(frozen=True, kw_only=True)
class LinearRegression(Declared):
    """Features x and weights w of standard normal numbers, and labels <x, w> with normal noise of `noise_std`.

    The first `records` are private, the next `test_records` are public.
    Shapes: features float32 [n, d], labels float32 [n].
    Source: the simulations of Mohapatra et al. 2022, section 5; the distribution as far as the text states it.
    """

    sizes = ("inputs",)
    only_classes = 1
    noise_std: float
    seed: int

    def _check_declared_fields(self) -> None:
        non_negative("dataset.noise_std", self.noise_std)

    @property
    def preprocessing(self) -> Form:
        """No change: features are inputs."""
        return preprocessing_form_of_array(self.shape)

    def locate(self, folder: Path | None) -> None:
        """Do nothing: there are no files."""

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """The content of the private records."""
        features, labels = self._generate_features_and_labels()
        return (Content.from_chunks((features[: self.records].tobytes(), labels[: self.records].tobytes())),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The records, generated again; the same on every machine."""
        import torch

        features, labels = map(torch.from_numpy, self._generate_features_and_labels())
        private, test = (
            Records(features=features[part], labels=labels[part])
            for part in (slice(self.records), slice(self.records, None))
        )
        return private, test if len(test) else None

    def _generate_features_and_labels(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        rng = np.random.Generator(np.random.PCG64(self.seed))
        weights = rng.standard_normal(self.shape[0])
        features = rng.standard_normal((self.records + self.test_records, self.shape[0]))
        labels = features @ weights + self.noise_std * rng.standard_normal(len(features))
        return features.astype(np.float32), labels.astype(np.float32)
