"""The parts of the records for a search and its final run: disjoint, and decided by each record alone."""

from __future__ import annotations

import numpy as np
import pytest

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.selection.disjoint_parts import Use
from dpsweep.trainers.data.parts import DataPart
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.split import hold_out, part_mask
from dpsweep.trainers.data.units import by_unit
from tests.trainers.data.test_split import some

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
SEARCH, FINAL = DataPart(share=0.3, use=Use.SEARCH), DataPart(share=0.3, use=Use.FINAL)


def names(records: Records) -> set[bytes]:
    return set(records.contents())


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_every_record_is_in_one_part(adjacency: Adjacency) -> None:
    records = some(2000)
    search, final = SEARCH.of(records, adjacency), FINAL.of(records, adjacency)
    assert names(search).isdisjoint(names(final))
    assert names(search) | names(final) == names(records)
    assert len(search) == pytest.approx(600, abs=80)


def test_removing_a_record_moves_no_other_to_another_part() -> None:
    records = some(40)
    search = names(SEARCH.of(records, ADD))
    for gone in range(40):
        rest = records.select(np.delete(np.arange(40), gone))
        assert names(SEARCH.of(rest, ADD)) == search & names(rest)


def test_replacing_a_record_changes_its_own_part_alone() -> None:
    records = some(60)
    for replaced in range(60):
        features = records.features.clone()
        features[replaced] = 255 - features[replaced]
        neighbour = Records(features=features, labels=records.labels)
        changed = [names(part.of(records, REPLACE)) != names(part.of(neighbour, REPLACE)) for part in (SEARCH, FINAL)]
        assert sorted(changed) == [False, True]


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
@pytest.mark.parametrize("part", [SEARCH, FINAL], ids=["search", "final"])
def test_the_holdout_of_each_part_has_its_usual_share(part: DataPart, adjacency: Adjacency) -> None:
    """With one key for both, the search's part would be held out as a whole, since its hashes are the smallest."""
    records = part.of(some(4000), adjacency)
    split = hold_out(records, fraction=0.3, adjacency=adjacency)
    assert split.holdout is not None
    assert len(split.holdout) / len(records) == pytest.approx(0.3, abs=0.05)
    if adjacency is ADD:
        whole = names(some(4000).select(part_mask(some(4000), 0.3, ADD)))
        assert names(split.holdout) == whole & names(records)


def test_a_unit_stays_in_one_part() -> None:
    rng = np.random.default_rng(3)
    units = [b"%d" % name for name in rng.integers(0, 50, size=400)]
    records = by_unit(some(400), units, cap=400)
    search, final = SEARCH.of(records, ADD), FINAL.of(records, ADD)
    assert search.units is not None
    assert final.units is not None
    assert set(search.units.names).isdisjoint(final.units.names)
    assert len(search.units) + len(final.units) == 50
    with pytest.raises(ValueError, match="for units"):
        SEARCH.of(records, REPLACE)


def test_nominal_sizes_are_declared_shares_and_exact_where_the_number_of_records_is_public() -> None:
    assert (SEARCH.nominal(1000, ADD), FINAL.nominal(1000, ADD)) == (300, 700)
    assert (SEARCH.nominal(1, ADD), FINAL.nominal(1, ADD)) == (1, 1)
    for part in (SEARCH, FINAL):
        assert part.nominal(1000, REPLACE) == len(part.of(some(1000), REPLACE))


def test_shares_are_fractions_and_uses_are_known() -> None:
    with pytest.raises(ValueError, match="Expected 0 < share=1 < 1"):
        DataPart(share=1, use=Use.SEARCH)
    with pytest.raises(ValueError, match="'both' is not a valid Use"):
        DataPart(share=0.5, use="both")  # type: ignore[arg-type]
