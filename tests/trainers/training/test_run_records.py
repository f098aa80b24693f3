"""A run's records: its cuts are disjoint, declared sizes are those that are loaded, and what is no cut is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.places import most_joining, most_units
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.sets.generated import Generated
from dpsweep.trainers.declarations.scores import PrivateHoldout, PublicTest, Score
from dpsweep.trainers.features.extracted import Extracted
from dpsweep.trainers.features.scattering import Scattering
from dpsweep.trainers.training.run_records import RecordStore, RunRecords
from tests.places import READER

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
SEALED = {"share": 0.2, "parts": 2}
PART = {"share": 0.25, "use": "search"}
SECRET = {"secret": True}
HERE = RecordStore(folder=None)


def records_of_run(
    adjacency: Adjacency = REPLACE, score: Score | None = None, dataset: Any = None, **cuts: Any
) -> RunRecords:
    return RunRecords.with_cuts_of_config(
        {"part": None, "sealed": None} | cuts,
        dataset=dataset or Generated(name="some", records=1000, test_records=400, shape=(4,), classes=2, unit="record"),
        score=score or PrivateHoldout(fraction=0.1, noise_std=1.0),
        adjacency=adjacency,
    )


def loaded_sizes(records: RunRecords) -> tuple[int, int]:
    """How many records train a run, and how many score it."""
    split = records.open_split(None, HERE)
    scored = split.test if split.holdout is None else split.holdout
    assert scored is not None
    return len(split.train), len(scored)


@pytest.mark.parametrize("part", [None, PART, PART | {"use": "final"}])
@pytest.mark.parametrize("sealed", [None, SEALED])
def test_declared_sizes_are_those_of_the_loaded_records_where_one_replaces_another(part: Any, sealed: Any) -> None:
    records = records_of_run(part=part, sealed=sealed)
    assert loaded_sizes(records) == (records.nominal_training_units, records.nominal_scored_units)
    assert sum(loaded_sizes(records)) == records.nominal_private_units


@pytest.mark.parametrize("adjacency", Adjacency)
def test_all_cuts_together_are_all_records(adjacency: Adjacency) -> None:
    search, final = (records_of_run(adjacency, part=PART | {"use": use}, sealed=SEALED) for use in ("search", "final"))
    parts = [len(search.open_sealed_part(READER, number, HERE)) for number in (1, 2)]
    assert sum(map(sum, (loaded_sizes(search), loaded_sizes(final), parts))) == 1000
    assert min(parts) > 50


def test_sealed_parts_of_public_records_leave_the_private_ones_alone() -> None:
    records = records_of_run(score=PublicTest(), sealed=SEALED | {"public": True})
    parts = sum(len(records.open_sealed_part(READER, number, HERE)) for number in (1, 2))
    assert loaded_sizes(records) == (1000, 400 - parts) == (1000, records.nominal_scored_units)


@pytest.mark.parametrize(
    ("cuts", "message"),
    [
        (
            {"part": {"share": 2, "use": "search"}},
            "Expected part={'share': 2, 'use': 'search'} to be a share and a use",
        ),
        ({"sealed": {"share": 2}}, "Expected sealed={'share': 2} to be a share and a number of parts"),
    ],
)
def test_a_cut_that_is_none_is_refused(cuts: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        records_of_run(**cuts)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(("sealed", "number"), [(None, 1), (SEALED, 0), (SEALED, 3)])
def test_a_sealed_part_that_there_is_not_is_refused(sealed: Any, number: int) -> None:
    with pytest.raises(BadInput, match=f"Expected sealed part {number} to be one of those of some"):
        records_of_run(sealed=sealed).open_sealed_part(READER, number, HERE)


def test_records_are_loaded_once_for_runs_with_the_same_records() -> None:
    records = records_of_run()
    assert records.open_split(None, HERE) is records.open_split(None, RecordStore(folder=None))


def test_frozen_features_are_not_computed_without_a_device() -> None:
    pictures = Generated(name="some", records=8, test_records=0, shape=(1, 28, 28), classes=2, unit="record")
    records = records_of_run(dataset=Extracted(of=pictures, extractor=Scattering(groups=27, norm=4.0, size=81 * 49)))
    with pytest.raises(ContractBroken, match="Expected frozen features for some, as declared"):
        records.open_split(None, HERE)


class More(Generated):
    """More records than it declares."""

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        return replace(self, records=1300).load(folder) if self.records == 1000 else super().load(folder)


@pytest.mark.parametrize(
    "cuts", [{}, {"part": PART}, {"part": PART | {"use": "final"}}, {"sealed": SEALED}, {"part": PART | SECRET}]
)
def test_more_records_than_have_places_are_refused_and_never_trained(cuts: dict[str, Any]) -> None:
    declared = {"name": "some", "records": 1000, "test_records": 0, "shape": (4,), "classes": 2, "unit": "record"}
    records_of_run(ADD, dataset=Generated(**declared), **cuts).require_places(HERE)
    records = records_of_run(ADD, dataset=More(**declared), **cuts)
    with pytest.raises(BadInput, match=r"^Expected dataset\.records to be about the number of records of some: a part"):
        records.require_places(HERE)
    if not cuts:
        with pytest.raises(ContractBroken, match="about as many records of some as were charged"):
            records.open_split(None, HERE)


def test_a_secret_part_has_places_for_what_its_coins_may_choose() -> None:
    whole, part = records_of_run(ADD), records_of_run(ADD, part=PART | SECRET)
    assert whole.most_training_units() == most_units(900)
    assert part.most_training_units() == most_joining(most_units(900), 0.25) > 1.6 * 0.25 * 1000
    assert part.most_training_units(3) == most_joining(most_units(300), 0.25)
