"""A dataset of torch: every index is read once, and what is wrong is said with the index that it is wrong at."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.sets.own_arrays import TorchDataset

pytestmark = pytest.mark.usefixtures("trusting")

MODULE = """
import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

ROWS = torch.tensor([[0.0, 5.0], [-10.0, 10.0], [-99.0, 99.0], [1.0, 1.0]])

class Visits(Dataset):
    def __init__(self, change=None, size=4):
        self.change, self.size = change or {}, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index in self.change:
            return eval(self.change[index])
        return ROWS[index], torch.tensor(index % 2)

class Patients(Visits):
    who = ["P1", "P2", "P1", "P1"]
    nobody = ["P1", "", "P1", "P1"]
    few = torch.tensor([1, 2])
    known = property(lambda self: 1 / 0)

class Arrays(Visits):
    def __getitem__(self, index):
        return ROWS[index].numpy().tolist(), np.int32(index % 2)

class Images(Visits):
    def __getitem__(self, index):
        return np.full((2,), 51 * index, dtype=np.uint8), bool(index % 2)

class Counted(Visits):
    reads = []

    def __getitem__(self, index):
        self.reads.append(index)
        return ROWS[index % 4] + index, index % 2

class Numbers(Visits):
    def __getitem__(self, index):
        return ROWS[index], torch.tensor(100.0 * index)

class Several(Visits):
    def __getitem__(self, index):
        return ROWS[index], [index % 2, 1]

class Shuffled(Counted):
    def __init__(self, size=4):
        super().__init__(size=size)
        self.order = torch.randperm(size)

    def __getitem__(self, index):
        return super().__getitem__(int(self.order[index]))

class Drawing(Counted):
    def __init__(self, size=4):
        super().__init__(size=size)
        self.generator = torch.Generator().manual_seed(1)

    def __getitem__(self, index):
        return torch.rand(2, generator=self.generator), 0

class Growing(Counted):
    made = []

    def __init__(self):
        self.made.append(1)
        super().__init__(size=3 + len(self.made))

class Endless(IterableDataset):
    def __iter__(self):
        return iter([])
"""
VISITS = TorchDataset(
    name="visits",
    records=4,
    test_records=0,
    shape=(2,),
    classes=2,
    unit="record",
    source={"_target_": "own_visits.Visits"},
    bounds=(-10, 10),
)


@pytest.fixture(autouse=True)
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_visits.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_visits", None)


def of(kind: str, **arguments: Any) -> TorchDataset:
    return dataclasses.replace(VISITS, source={"_target_": f"own_visits.{kind}", **arguments})


@pytest.mark.parametrize("kind", ["Visits", "Arrays"])
def test_tensors_arrays_and_lists_are_clamped_and_scaled(kind: str) -> None:
    private, public = of(kind).load(None)
    assert public is None
    expected = torch.tensor([[0.5, 0.75], [0, 1], [0, 1], [0.55, 0.55]])
    assert torch.allclose(private.inputs(slice(0, 4), "cpu"), expected)
    assert private.labels.tolist() == [0, 1, 0, 1]


def test_images_stay_bytes() -> None:
    private, _ = dataclasses.replace(of("Images"), bounds=(0, 255)).load(None)
    assert private.features.dtype == torch.uint8
    assert torch.allclose(private.inputs(slice(0, 4), "cpu")[:, 0], torch.tensor([0, 0.2, 0.4, 0.6]))
    assert private.labels.tolist() == [0, 1, 0, 1]


def test_labels_may_be_numbers_or_several() -> None:
    numbers = dataclasses.replace(of("Numbers"), classes=1, target=(0, 200), target_unit="ms")
    assert numbers.verify(None) == VISITS.verify(None)
    assert numbers.load(None)[0].labels.tolist() == [0, 0.5, 1, 1]
    assert numbers.preprocessing["target"] == [0, 200]
    several = dataclasses.replace(of("Several"), label_names=("fever", "cough"))
    assert several.verify(None) == VISITS.verify(None)
    assert several.load(None)[0].labels.tolist() == [[0, 1], [1, 1], [0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("change", "declared", "sentence"),
    [
        ("(ROWS[1], 0.5)", {}, r"a whole number as label at index 1"),
        (
            "(ROWS[1], [1.0])",
            {"classes": 1, "target": (0, 1)},
            r"a number as label at index 1, got ValueError: labels of shape \[1\]",
        ),
        ("(ROWS[1], float('nan'))", {"classes": 1, "target": (0, 1)}, r"to be finite numbers, got nan at index 1"),
        ("(ROWS[1], [1])", {"label_names": ("a", "b")}, r"2 numbers of 0 and 1 as label at index 0"),
        ("(ROWS[1], 1)", {"classes": 1}, r"Expected dataset\.target, the public range"),
    ],
)
def test_labels_of_another_kind_are_refused(change: str, declared: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(of("Visits", change={1: change}), **declared).verify(None)


def test_it_is_recognised_by_its_inputs() -> None:
    known = VISITS.verify(None)
    relabelled = of("Visits", change={0: "(ROWS[0], 1)"})
    assert dataclasses.replace(relabelled, name="other", bounds=(0, 1)).verify(None) == known
    assert of("Visits", change={0: "(ROWS[1], 0)"}).verify(None) != known
    assert of("Visits", size=3).verify(None) != known


@pytest.mark.parametrize(
    "pair", ["(torch.rand(2), 0)", "(ROWS[0], self.__dict__.setdefault('seen', []).append(0) or len(self.seen) % 2)"]
)
def test_random_transforms_are_refused(pair: str) -> None:
    """A record that is another at every reading would be held out in one run and trained on in the next."""
    with pytest.raises(BadInput, match=r"to give the same at index 2 whenever it is asked"):
        of("Visits", change={2: pair}).verify(None)


@pytest.mark.parametrize("size", [0, 1, 7, 64, 65, 500])
def test_each_record_is_read_once_and_a_few_are_asked_for_again_before_a_charge(size: int) -> None:
    counted = of("Counted", size=size)
    counted.verify(None)
    reads = sys.modules["own_visits"].Counted.reads
    few = sorted(reads[size : size + min(64, size)])
    assert reads[:size] == list(range(size))
    assert reads[size:] == 2 * few[::-1], "of the same object and of a new one, the last index first"
    assert len({*few}) == min(64, size)
    assert {0, size - 1} <= {*few} or size == 0
    reads.clear()
    counted.load(None)
    assert reads == list(range(size))


@pytest.mark.parametrize("kind", ["Shuffled", "Drawing"])
def test_what_is_drawn_when_a_dataset_is_made_is_refused_though_it_is_the_same_object_ever_after(kind: str) -> None:
    with pytest.raises(BadInput, match=r"to give the same at index \d+ whenever it is asked: .* drawn or counted"):
        of(kind, size=100).verify(None)


def test_a_length_that_is_another_when_it_is_made_again_is_refused() -> None:
    with pytest.raises(BadInput, match=r"Growing to have the same length whenever it is made, got 4 and 5\.$"):
        of("Growing").verify(None)


def test_no_records_are_fine() -> None:
    assert of("Visits", size=0).load(None)[0].features.shape == (0, 2)


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        (
            "(ROWS[0] * float('nan'), 0)",
            r"the inputs of own_visits\.Visits to be finite numbers, got another at index 2",
        ),
        ("(ROWS[0], 2)", r"the labels of own_visits\.Visits in 0\.\.1, got 2 at index 2"),
        ("(ROWS[0], -1)", r"the labels of own_visits\.Visits in 0\.\.1, got -1 at index 2"),
        (
            "(ROWS[0], 0.5)",
            r"own_visits\.Visits to give an input and a whole number as label at index 2, got TypeError",
        ),
        ("ROWS[0, 0]", r"own_visits\.Visits to give an input and a whole number as label at index 2, got TypeError"),
        ("1 / 0", r".* at index 2, got ZeroDivisionError: division by zero"),
        ("(ROWS[:, 0], 0)", r".* to give float32 of shape \[2\] at index 2, got float32 of \[4\]"),
        ("(ROWS[0].double(), 0)", r".* to give float32 of shape \[2\] at index 2, got float64 of \[2\]"),
        ("('ab', 0)", r".* to give float32 of shape \[2\] at index 2, got <U2 of \[\]"),
    ],
)
def test_a_wrong_record_is_refused_with_its_index_before_anything_is_charged(pair: str, sentence: str) -> None:
    for look in (of("Visits", change={2: pair}).verify, of("Visits", change={2: pair}).load):
        with pytest.raises(BadInput, match=f"^Expected {sentence}"):
            look(None)


def test_inputs_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(BadInput, match=r"real numbers, got complex64\.$"):
        of("Visits", size=1, change={0: "(ROWS[0] + 1j, 0)"}).verify(None)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"_target_": "own_visits.Visit"}, "ImportError: .*own_visits has no Visit"),
        ({"_target_": "own_visit.Visits"}, "ImportError: .*No module named 'own_visit'"),
        ({"_target_": "own_visits.Visits", "root": 1}, "TypeError: .*unexpected keyword argument 'root'"),
        ({"_target_": "own_visits.Endless"}, "TypeError: object of type 'Endless' has no len"),
    ],
)
def test_a_class_that_cannot_be_had_is_one_sentence(source: dict[str, Any], why: str) -> None:
    with pytest.raises(
        BadInput, match=rf"^Expected dataset\.source\._target_={source['_target_']} to make .*got {why}"
    ):
        dataclasses.replace(VISITS, source=source).verify(None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": {}},
        {"source": {"_target_": "Visits"}},
        {"source": "visits.Visits"},
        {"bounds": 1},
        {"test_records": 1},
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"Expected dataset\\.{next(iter(wrong))}="):
        dataclasses.replace(VISITS, **wrong)


BY_PATIENT: dict[str, Any] = {"unit": "patient", "unit_column": "who", "units": 2, "contribution_cap": 2}


def test_the_units_are_an_attribute_and_are_capped() -> None:
    private, _ = dataclasses.replace(of("Patients"), **BY_PATIENT).load(None)
    assert private.units is not None
    assert private.units.names == (b"P1", b"P2")
    assert len(private) == 3, "two of the three of P1"
    assert dataclasses.replace(of("Patients"), **BY_PATIENT).verify(None) == of("Patients").verify(None)


@pytest.mark.parametrize(
    ("attribute", "sentence"),
    [
        ("nobody", r"to say whose record it is, got nothing at index 1\.$"),
        ("few", r"of shape \[4\], as many as features, got \[2\]\.$"),
        ("change", r"to hold texts or whole numbers, got object\.$"),
        ("known", r"to say whose each record is, got ZeroDivisionError: division by zero\.$"),
        ("whom", r"to say whose each record is, got AttributeError: .*whom'\.$"),
    ],
)
def test_records_without_a_unit_are_refused(attribute: str, sentence: str) -> None:
    wrong = dataclasses.replace(of("Patients"), **{**BY_PATIENT, "unit_column": attribute})
    for look in (wrong.verify, wrong.load):
        with pytest.raises(BadInput, match=rf"^Expected {attribute} of own_visits\.Patients {sentence}"):
            look(None)
