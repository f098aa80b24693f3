"""Cyclic Poisson sampling: fixed parts that no other record moves, the declared rate, and its event."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dpsweep.accounting.events.build import are_same_events, number_of_steps, poisson_gaussian, repeat
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.records import Records, Units
from dpsweep.trainers.data.split import KEY, pseudo_random_part_mask, units_of_each_cyclic_part
from dpsweep.trainers.declarations.batch_sampling import (
    CyclicPoisson,
    Poisson,
    check_steps_are_whole_periods,
    privacy_event_counts_of_run,
)

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


def numbered(numbers: list[int]) -> Records:
    features = torch.tensor(numbers, dtype=torch.float32)[:, None]
    return Records(features=features, labels=torch.zeros(len(numbers), dtype=torch.int64))


def part_of_each(records: Records, parts: int, adjacency: Adjacency) -> np.ndarray:
    where = np.full(records.number_of_units, -1)
    for part, units in enumerate(units_of_each_cyclic_part(records, parts, adjacency)):
        assert (where[units] == -1).all()
        assert (np.diff(units) > 0).all()
        where[units] = part
    assert (where >= 0).all()
    return where


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_parts_are_disjoint_and_about_equal(adjacency: Adjacency, parts: int) -> None:
    where = part_of_each(numbered(list(range(7000))), parts, adjacency)
    sizes = np.bincount(where, minlength=parts)
    assert np.abs(sizes - 7000 / parts).max() < 5 * np.sqrt(7000 / parts)


def test_an_added_record_moves_no_other_to_another_part() -> None:
    with_it = part_of_each(numbered([999, *range(100)]), 5, ADD)
    assert with_it[1:].tolist() == part_of_each(numbered(list(range(100))), 5, ADD).tolist()


def test_a_replaced_record_stays_in_the_part_of_its_place() -> None:
    ours, theirs = numbered(list(range(100))), numbered([999, *range(1, 100)])
    assert part_of_each(ours, 5, REPLACE).tolist() == part_of_each(theirs, 5, REPLACE).tolist()


def test_all_records_of_a_unit_are_in_one_part() -> None:
    of = np.repeat(np.arange(40), 3)
    units = Units(names=tuple(f"unit {place}".encode() for place in range(40)), of=of)
    records = replace(numbered(list(range(120))), units=units)
    assert len(part_of_each(records, 4, ADD)) == 40
    with pytest.raises(ValueError, match=r"Expected adjacency"):
        units_of_each_cyclic_part(records, 4, REPLACE)


def test_parts_do_not_nest_in_the_parts_of_another_split() -> None:
    records = numbered(list(range(4000)))
    final = pseudo_random_part_mask(records, 0.5, ADD, KEY)
    shares = [final[units].mean() for units in units_of_each_cyclic_part(records, 4, ADD)]
    assert shares == pytest.approx([0.5] * 4, abs=0.1)


def test_a_part_is_sampled_at_the_declared_rate() -> None:
    sampler, rng = CyclicPoisson(batch_size=50, parts=4), np.random.Generator(np.random.Philox(7))
    units, sizes = sampler.draw_batch_indices(4000, 100, 500, rng)
    rate = 4 * 50 / 500
    assert len(sizes) == 4000
    assert np.abs(np.bincount(units, minlength=100) / 4000 - rate).max() < 5 * np.sqrt(rate * (1 - rate) / 4000)


def test_one_part_draws_and_costs_what_poisson_does() -> None:
    draws = [
        sampler.draw_batch_indices(3, 80, 90, np.random.Generator(np.random.Philox(1)))
        for sampler in (CyclicPoisson(batch_size=30, parts=1), Poisson(batch_size=30))
    ]
    assert all((one == other).all() for one, other in zip(*draws, strict=True))
    events = [
        sampler.event_per_period(records=90, noise_multiplier=1.3)
        for sampler in (CyclicPoisson(batch_size=30, parts=1), Poisson(batch_size=30))
    ]
    assert events[0] == events[1] == poisson_gaussian(sample_rate=30 / 90, noise_multiplier=1.3)


def test_a_run_is_as_many_accesses_as_it_has_cycles() -> None:
    sampler = CyclicPoisson(batch_size=10, parts=5)
    ((event, count),) = privacy_event_counts_of_run(
        sampler, {1.0: 35}, records=100, noise_multiplier=2.0, public=False
    ).items()
    assert count == 7
    assert number_of_steps(repeat(event, count)) == 35
    assert not are_same_events(event, poisson_gaussian(sample_rate=0.5, noise_multiplier=2.0))


def test_more_than_a_part_is_refused() -> None:
    CyclicPoisson(batch_size=25, parts=4).event_per_period(records=100, noise_multiplier=1.0)
    with pytest.raises(ValueError, match=r"Expected sampler.parts=4 times sampler.batch_size=26 <= records=100"):
        CyclicPoisson(batch_size=26, parts=4).event_per_period(records=100, noise_multiplier=1.0)
    with pytest.raises(ValueError, match=r"Expected parts=0"):
        CyclicPoisson(batch_size=26, parts=0)


def test_a_broken_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected steps=10 to be whole cycles of 4 steps"):
        check_steps_are_whole_periods(CyclicPoisson(batch_size=5, parts=4), 100, steps=10)
