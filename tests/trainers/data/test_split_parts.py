"""The parts of the records for a search and its final run: disjoint, and decided by each record alone."""

from __future__ import annotations

import numpy as np
import pytest

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.records.plan import Use
from dpsweep.trainers.data.records import Records, assign_units_and_cap_records
from dpsweep.trainers.data.split import DataPart, pseudo_random_part_mask, split_off_holdout
from tests.trainers.data.test_split import some

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
SEARCH, FINAL = DataPart(share=0.3, use=Use.SEARCH), DataPart(share=0.3, use=Use.FINAL)


def names(records: Records) -> set[bytes]:
    return set(records.bytes_of_each_record())


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_every_record_is_in_one_part(adjacency: Adjacency) -> None:
    records = some(2000)
    search, final = SEARCH.records_in_part(records, adjacency), FINAL.records_in_part(records, adjacency)
    assert names(search).isdisjoint(names(final))
    assert names(search) | names(final) == names(records)
    assert len(search) == pytest.approx(600, abs=80)


def test_removing_a_record_moves_no_other_to_another_part() -> None:
    records = some(40)
    search = names(SEARCH.records_in_part(records, ADD))
    for gone in range(40):
        rest = records.select(np.delete(np.arange(40), gone))
        assert names(SEARCH.records_in_part(rest, ADD)) == search & names(rest)


def test_replacing_a_record_changes_its_own_part_alone() -> None:
    records = some(60)
    for replaced in range(60):
        features = records.features.clone()
        features[replaced] = 255 - features[replaced]
        neighbour = Records(features=features, labels=records.labels)
        changed = [
            names(part.records_in_part(records, REPLACE)) != names(part.records_in_part(neighbour, REPLACE))
            for part in (SEARCH, FINAL)
        ]
        assert sorted(changed) == [False, True]


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
@pytest.mark.parametrize("part", [SEARCH, FINAL], ids=["search", "final"])
def test_the_holdout_of_each_part_has_its_usual_share(part: DataPart, adjacency: Adjacency) -> None:
    """With one key for both, the search's part would be held out as a whole, since its hashes are the smallest."""
    records = part.records_in_part(some(4000), adjacency)
    split = split_off_holdout(records, fraction=0.3, adjacency=adjacency)
    assert split.holdout is not None
    assert len(split.holdout) / len(records) == pytest.approx(0.3, abs=0.05)
    if adjacency is ADD:
        whole = names(some(4000).select(pseudo_random_part_mask(some(4000), 0.3, ADD)))
        assert names(split.holdout) == whole & names(records)


def test_a_unit_stays_in_one_part() -> None:
    rng = np.random.default_rng(3)
    units = [b"%d" % name for name in rng.integers(0, 50, size=400)]
    records = assign_units_and_cap_records(some(400), units, cap=400)
    search, final = SEARCH.records_in_part(records, ADD), FINAL.records_in_part(records, ADD)
    assert search.units is not None
    assert final.units is not None
    assert set(search.units.names).isdisjoint(final.units.names)
    assert len(search.units) + len(final.units) == 50
    with pytest.raises(ValueError, match="for units"):
        SEARCH.records_in_part(records, REPLACE)


def test_nominal_sizes_are_declared_shares_and_exact_where_the_number_of_records_is_public() -> None:
    assert (SEARCH.nominal_units_in_part(1000, ADD), FINAL.nominal_units_in_part(1000, ADD)) == (300, 700)
    assert (SEARCH.nominal_units_in_part(1, ADD), FINAL.nominal_units_in_part(1, ADD)) == (1, 1)
    for part in (SEARCH, FINAL):
        assert part.nominal_units_in_part(1000, REPLACE) == len(part.records_in_part(some(1000), REPLACE))


def test_shares_are_fractions_and_uses_are_known() -> None:
    with pytest.raises(ValueError, match="Expected 0 < share=1 < 1"):
        DataPart(share=1, use=Use.SEARCH)
    with pytest.raises(ValueError, match="'both' is not a valid Use"):
        DataPart(share=0.5, use="both")  # type: ignore[arg-type]


SECRET, REST = (DataPart(share=0.3, use=use, secret=True) for use in Use)
COINS, OTHERS = bytes(range(32)), bytes(range(1, 33))


def test_secret_coins_divide_the_records_into_two_parts() -> None:
    records = some(2000)
    search, rest = SECRET.records_in_part(records, ADD, COINS), REST.records_in_part(records, ADD, COINS)
    assert len(search) + len(rest) == 2000
    assert names(search).isdisjoint(names(rest))
    assert len(search) == pytest.approx(600, abs=80)
    both = names(search) & names(SECRET.records_in_part(records, ADD, OTHERS))
    assert len(both) == pytest.approx(180, abs=60), "other coins are independent ones"


def test_equal_records_have_coins_of_their_own() -> None:
    """A coin made of a record's contents would be one for all of them, and subsampling would amplify nothing."""
    one = some(1)
    copies = one.select(np.zeros(1000, dtype=np.int64))
    assert len(SECRET.records_in_part(copies, ADD, COINS)) == pytest.approx(300, abs=70)
    assert len(SEARCH.records_in_part(copies, ADD)) in (0, 1000)


def test_the_coins_of_others_do_not_depend_on_a_record() -> None:
    records = some(50)
    last = records.select(np.arange(49))
    assert names(SECRET.records_in_part(last, ADD, COINS)) == names(
        SECRET.records_in_part(records, ADD, COINS)
    ) & names(last)


def test_units_have_one_coin_for_all_of_their_records() -> None:
    records = assign_units_and_cap_records(some(600), [f"patient {number % 60}" for number in range(600)], cap=100)
    units = records.units
    assert units is not None
    search = SECRET.records_in_part(records, ADD, COINS)
    assert search.units is not None
    assert len(search) == 10 * len(set(search.units.of.tolist()))
    assert 5 < len(search) / 10 < 35


def test_random_bits_are_there_for_secret_parts_alone() -> None:
    for part, coins in ((SECRET, b""), (SECRET, COINS[:15]), (SEARCH, COINS)):
        with pytest.raises(ContractBroken, match="random bits for a secret part alone"):
            part.records_in_part(some(9), ADD, coins)
    with pytest.raises(BadInput, match="add_or_remove_one with a secret part"):
        SECRET.nominal_units_in_part(100, REPLACE)
    assert (SECRET.nominal_units_in_part(100, ADD), REST.nominal_units_in_part(100, ADD)) == (30, 70)
