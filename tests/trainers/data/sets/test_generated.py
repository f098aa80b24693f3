"""Generated records: of the declared shape and number, the same everywhere, and easier to learn than noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from dpsweep.trainers.data.records import IGNORED
from dpsweep.trainers.data.sets.generated import Generated

IMAGES = Generated(name="r", records=300, test_records=40, shape=(1, 4, 4), classes=3, unit="record")
NUMBERS = replace(IMAGES, classes=1, shape=(5,))


@dataclass(frozen=True, kw_only=True)
class Words:
    words: int = 11
    padding: int = 0
    file: str | None = None
    sha256: str | None = None
    checked: bool = True

    def check_vocabulary_file(self) -> None:
        assert self.checked


TEXTS = replace(IMAGES, shape=(6,), classes=2, vocabulary=Words())
SEQUENCES = replace(TEXTS, classes=11, per_position=True)
ALL = {"images": IMAGES, "numbers": NUMBERS, "texts": TEXTS, "sequences": SEQUENCES}


@pytest.mark.parametrize("data", ALL.values(), ids=ALL)
def test_records_have_the_declared_shape_and_number(data: Generated) -> None:
    private, public = data.load(Path("/nowhere"))
    assert public is not None
    assert (len(private), len(public)) == (data.records, data.test_records)
    assert tuple(private.features.shape[1:]) == data.shape
    inputs = private.inputs(slice(None), "cpu").numpy()
    assert inputs.min() >= 0
    assert inputs.max() <= (1 if data.vocabulary is None else 10)
    again, _ = data.load(None)
    assert np.array_equal(private.features, again.features)
    assert np.array_equal(private.labels, again.labels)
    assert data.verify(None) == data.verify(Path("/nowhere")) != replace(data, name="s").verify(None)


def test_labels_are_of_their_kind() -> None:
    classes = IMAGES.load(None)[0].labels
    assert sorted(set(classes.tolist())) == [0, 1, 2]
    numbers = NUMBERS.load(None)[0].labels.numpy()
    assert numbers.dtype == np.float32
    assert 0.5 < numbers.std() < 2
    tokens, follows = (getattr(SEQUENCES.load(None)[0], name).numpy() for name in ("features", "labels"))
    assert np.array_equal(follows[:, :-1], tokens[:, 1:])
    assert set(follows[:, -1]) == {IGNORED}


@pytest.mark.parametrize("data", [IMAGES, TEXTS], ids=["images", "texts"])
def test_a_class_can_be_told_by_its_inputs(data: Generated) -> None:
    """The nearest class mean of the first half of the records is right for most of the second half."""
    private, _ = data.load(None)
    inputs, labels = private.inputs(slice(None), "cpu").numpy().reshape(300, -1), private.labels.numpy()
    if data.vocabulary is not None:
        inputs = inputs % data.classes
    means = np.stack([inputs[:150][labels[:150] == label].mean(0) for label in range(data.classes)])
    nearest = ((inputs[150:, None] - means) ** 2).sum(2).argmin(1)
    assert (nearest == labels[150:]).mean() > 0.9


def test_units_have_at_most_so_many_records() -> None:
    patients = replace(IMAGES, unit="patient", unit_column="who", units=120, contribution_cap=2)
    private, _ = patients.load(None)
    assert private.units is not None
    assert len(private.units) == 120
    assert set(private.units.records_per_unit.tolist()) == {2}


def test_nothing_but_the_vocabulary_is_looked_for() -> None:
    IMAGES.locate(Path("/nowhere"))
    TEXTS.locate(Path("/nowhere"))
    with pytest.raises(AssertionError):
        replace(TEXTS, vocabulary=Words(checked=False)).locate(None)
