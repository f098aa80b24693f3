"""Units of several records: grouped, capped, drawn and split as wholes, each regardless of the others."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.places import BLANK
from dpsweep.trainers.data.records import Records, Units, assign_units_and_cap_records
from dpsweep.trainers.data.split import pseudo_random_part_mask, split_off_holdout

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
CAP = 3


def plain(count: int, seed: int = 0) -> Records:
    """Random records without units, no two alike."""
    rng = np.random.default_rng(seed)
    features = torch.from_numpy(rng.random((count, 2), dtype=np.float32))
    return Records(features=features, labels=torch.from_numpy(rng.integers(0, 2, size=count)))


def visits(patients: int, seed: int = 0) -> tuple[Records, list[bytes]]:
    """Records of so many patients, 1 to 8 of each in mixed order, and whose each is."""
    rng = np.random.default_rng(seed)
    whose = rng.permutation(np.repeat(np.arange(patients), rng.integers(1, 9, size=patients)))
    return plain(len(whose), seed), [f"patient {patient}".encode() for patient in whose]


def kept(records: Records) -> dict[bytes, Counter[tuple[float, ...]]]:
    """Each unit's records, whatever their order."""
    assert records.units is not None
    found: dict[bytes, Counter[tuple[float, ...]]] = {}
    rows = records.stored_features().tolist()
    for unit, features, label in zip(records.units.of, rows, records.labels.tolist(), strict=True):
        found.setdefault(records.units.names[unit], Counter())[(*features, label)] += 1
    return found


def test_every_unit_keeps_at_most_the_cap_and_all_it_has_below() -> None:
    records, whose = visits(50)
    has, keeps = Counter(whose), kept(assign_units_and_cap_records(records, whose, CAP))
    assert max(has.values()) > CAP > min(has.values())
    assert {name: sum(found.values()) for name, found in keeps.items()} == {
        name: min(count, CAP) for name, count in has.items()
    }
    assert len(assign_units_and_cap_records(records, whose, 8)) == len(records)


def test_a_record_stays_with_its_unit() -> None:
    records, whose = visits(50)
    owner = {(*features, label): name for features, label, name in _rows(records, whose)}
    for name, found in kept(assign_units_and_cap_records(records, whose, CAP)).items():
        assert {owner[record] for record in found} == {name}


def _rows(records: Records, whose: list[bytes]) -> list[tuple[list[float], int, bytes]]:
    return list(zip(records.stored_features().tolist(), records.labels.tolist(), whose, strict=True))


def test_the_records_kept_are_those_with_the_smallest_published_hashes() -> None:
    records, whose = plain(20), [b"one"] * 20
    contents = [
        int(label).to_bytes(8, "little") + features.numpy().astype("<f4").tobytes()
        for features, label in zip(records.stored_features(), records.labels, strict=True)
    ]
    tags = [hashlib.blake2b(content, digest_size=16, key=b"dpsweep contribution 1").digest() for content in contents]
    smallest = sorted(np.argsort(tags)[:CAP].tolist())
    capped = assign_units_and_cap_records(records, whose, CAP)
    assert torch.equal(capped.stored_features(), records.stored_features(np.array(smallest)))


def test_the_order_of_the_file_decides_nothing() -> None:
    records, whose = visits(50)
    order = np.random.default_rng(1).permutation(len(whose))
    shuffled = assign_units_and_cap_records(records.select(order), [whose[place] for place in order], CAP)
    assert kept(shuffled) == kept(assign_units_and_cap_records(records, whose, CAP))


def test_equal_records_of_one_unit_are_kept_up_to_the_cap() -> None:
    twins = plain(1).select(np.zeros(5, dtype=np.int64))
    assert len(assign_units_and_cap_records(twins, [b"a"] * 5, CAP)) == CAP
    assert len(assign_units_and_cap_records(twins, [b"a", b"a", b"b", b"b", b"b"], CAP)) == 5


@pytest.mark.parametrize("copies", [1, 500])
def test_adding_one_unit_changes_no_other_units_records_or_part(copies: int) -> None:
    records, whose = visits(60)
    more = plain(len(whose) + copies, seed=9)
    features = torch.cat([1e6 * more.stored_features(slice(copies)), records.stored_features()])
    both = Records(features=features, labels=torch.cat([more.labels[:copies], records.labels]))
    one = split_off_holdout(assign_units_and_cap_records(records, whose, CAP), fraction=0.3, adjacency=ADD)
    two = split_off_holdout(
        assign_units_and_cap_records(both, [b"new"] * copies + whose, CAP), fraction=0.3, adjacency=ADD
    )
    assert one.holdout is not None
    assert two.holdout is not None
    ours = [kept(part) for part in (one.train, one.holdout)]
    theirs = [kept(part) for part in (two.train, two.holdout)]
    assert sum(b"new" in part for part in theirs) == 1
    assert [{name: found for name, found in part.items() if name != b"new"} for part in theirs] == ours
    assert all(part for part in ours)


def test_all_records_of_a_unit_fall_into_one_part() -> None:
    records = assign_units_and_cap_records(*visits(200), CAP)
    assert records.units is not None
    mask = pseudo_random_part_mask(records, 0.3, ADD)
    held = {records.units.names[unit] for unit in records.units.of[mask]}
    trained = {records.units.names[unit] for unit in records.units.of[~mask]}
    assert not held & trained
    assert 0.2 < len(held) / 200 < 0.4


def test_the_part_is_the_published_hash_of_the_identifier() -> None:
    records, whose = visits(40)
    digests = [hashlib.blake2b(name, digest_size=8, key=b"dpsweep holdout 1").digest() for name in whose]
    mask = pseudo_random_part_mask(assign_units_and_cap_records(records, whose, 8), 0.25, ADD)
    assert mask.tolist() == [digest[0] < 64 for digest in digests]


def test_replacing_units_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Expected adjacency=replace_one to be add_or_remove_one for units\.$"):
        pseudo_random_part_mask(assign_units_and_cap_records(*visits(5), CAP), 0.3, REPLACE)


def test_units_without_records_in_a_selection_are_gone() -> None:
    records = assign_units_and_cap_records(plain(6), [b"a", b"b", b"a", b"c", b"b", b"c"], CAP)
    chosen = records.select(np.array([5, 1, 3]))
    assert chosen.units is not None
    assert chosen.number_of_units == len(chosen.units) == 2
    assert [chosen.units.names[unit] for unit in chosen.units.of] == [b"c", b"b", b"c"]
    assert records.select(slice(0, 0)).number_of_units == 0
    assert records.to("cpu").units is records.units


def test_the_units_at_places_come_with_all_their_records_slot_after_slot() -> None:
    units = Units(names=(b"a", b"b", b"c", b"d"), of=np.array([2, 0, 1, 2, 3, 0, 2]))
    at_places = units.records_at_places(np.array([0, BLANK, 2]))
    assert at_places.tolist() == [[1, BLANK, 0], [5, BLANK, 3], [BLANK, BLANK, 6]]
    assert units.records_at_places(np.array([BLANK, BLANK])).tolist() == [[BLANK, BLANK]]
    assert units.records_at_places(np.array([], np.int64)).shape == (1, 0)
    alone = plain(4)
    assert alone.records_at_places(np.array([1, BLANK, 3])).tolist() == [[1, BLANK, 3]]
    assert alone.number_of_units == 4


def test_a_units_share_is_the_mean_over_its_records() -> None:
    units = Units(names=(b"a", b"b", b"c"), of=np.array([2, 0, 2, 1, 2, 2]))
    holds = np.array([True, True, False, False, False, False])
    assert replace(plain(6), units=units).mean_quality_of_each_unit(holds).tolist() == [1.0, 0.0, 0.25]
    assert plain(3).mean_quality_of_each_unit(np.array([True, False, True])).tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("names", "of", "sentence"),
    [
        ((b"a", b"a"), [0, 1], "to be distinct"),
        ((b"a", b"b"), [0, 0], "each of the 2 units"),
        ((b"a",), [0, 1], "each of the 1 units"),
        ((b"a", b"b"), [0, 1, -1], "each of the 2 units"),
        ((b"a",), [0.0], "to be int64"),
    ],
)
def test_units_that_make_no_sense_are_refused(names: tuple[bytes, ...], of: list[float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Units(names=names, of=np.array(of))


def test_units_of_other_records_are_refused() -> None:
    units = Units(names=(b"a",), of=np.array([0, 0]))
    with pytest.raises(ValueError, match=r"^Expected units\.of=2 entries for 3 records\.$"):
        Records(features=torch.zeros(3, 1), labels=torch.zeros(3, dtype=torch.int64), units=units)


@pytest.mark.parametrize("cap", [0, -1, 2.5])
def test_a_cap_that_keeps_nothing_is_refused(cap: float) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^Expected cap={cap}"):
        assign_units_and_cap_records(plain(2), [b"a", b"a"], cap)  # type: ignore[arg-type]


def test_no_records_are_no_units() -> None:
    nobody = assign_units_and_cap_records(plain(0), [], CAP)
    assert (len(nobody), nobody.number_of_units) == (0, 0)
    assert pseudo_random_part_mask(nobody, 0.3, ADD).shape == (0,)
