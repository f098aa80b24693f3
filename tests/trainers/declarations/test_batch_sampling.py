"""Samplers: inclusion as declared, by independent coins or in batches of fixed size, and the event that says so."""

from __future__ import annotations

import numpy as np
import pytest

from dpsweep.accounting.events.build import leaves_with_counts, poisson_gaussian, without_replacement_gaussian
from dpsweep.trainers.declarations.batch_sampling import FixedSize, Poisson

each_way = pytest.mark.parametrize("rows", [1, 50], ids=["one by one", "50 at once"])


def drawn(sampler: Poisson, available: int, records: int, rng: np.random.Generator) -> np.ndarray:
    units, sizes = sampler.draw_batch_indices(1, available, records, rng)
    assert sizes.tolist() == [len(units)]
    return units


def draws(available: int, records: int, batch_size: int, times: int, rows: int = 1) -> np.ndarray:
    """Whether each record takes part [times, available], `rows` draws at a time."""
    rng, sampler = np.random.Generator(np.random.Philox(7)), Poisson(batch_size=batch_size)
    inclusion = np.zeros((times, available))
    for first in range(0, times, rows):
        units, sizes = sampler.draw_batch_indices(rows, available, records, rng)
        inclusion[first + np.repeat(np.arange(rows), sizes), units] = 1
    return inclusion


@each_way
def test_each_record_is_included_at_the_declared_rate(rows) -> None:
    available, rate, times = 400, 50 / 500, 4000
    inclusion = draws(available, records=500, batch_size=50, times=times, rows=rows)
    by_record = inclusion.mean(axis=0)
    assert by_record.mean() == pytest.approx(rate, abs=5 * np.sqrt(rate * (1 - rate) / times / available))
    assert np.abs(by_record - rate).max() < 5 * np.sqrt(rate * (1 - rate) / times)


@each_way
def test_batch_sizes_are_binomial(rows) -> None:
    available, rate, times = 400, 0.1, 4000
    sizes = draws(available, records=500, batch_size=50, times=times, rows=rows).sum(axis=1)
    variance = available * rate * (1 - rate)
    assert sizes.mean() == pytest.approx(available * rate, abs=5 * np.sqrt(variance / times))
    assert sizes.var() == pytest.approx(variance, rel=5 * np.sqrt(2 / times))


@each_way
def test_records_and_steps_are_independent(rows) -> None:
    inclusion = draws(100, records=200, batch_size=40, times=5000, rows=rows)
    within = np.corrcoef(inclusion.T) - np.eye(100)
    between = np.corrcoef(inclusion[1:].ravel(), inclusion[:-1].ravel())[0, 1]
    assert np.abs(within).max() < 6 / np.sqrt(5000)
    assert abs(between) < 5 / np.sqrt(inclusion[1:].size)


@pytest.mark.parametrize("batch_size", [1, 30, 166, 167, 250, 499])
def test_inclusion_and_sizes_are_right_at_every_rate_for_the_first_records_and_the_last(batch_size) -> None:
    available, rate, times = 200, batch_size / 500, 4000
    inclusion = draws(available, records=500, batch_size=batch_size, times=times)
    by_record, variance = inclusion.mean(axis=0), available * rate * (1 - rate)
    assert np.abs(by_record - rate).max() < 5 * np.sqrt(rate * (1 - rate) / times)
    assert by_record[[0, 1, -2, -1]].mean() == pytest.approx(rate, abs=5 * np.sqrt(rate * (1 - rate) / times / 4))
    assert inclusion.sum(axis=1).mean() == pytest.approx(available * rate, abs=5 * np.sqrt(variance / times))
    assert inclusion.sum(axis=1).var() == pytest.approx(variance, rel=0.15)
    neighbours = (inclusion[:, 1:] * inclusion[:, :-1]).mean()
    assert neighbours == pytest.approx(rate**2, abs=5 * rate * np.sqrt(3 / times / available))


def test_a_tiny_rate_draws_almost_nothing_and_large_data_cost_nothing() -> None:
    rng = np.random.Generator(np.random.Philox(3))
    sampler = Poisson(batch_size=1)
    assert sum(len(drawn(sampler, 1000, 10**15, rng)) for _ in range(1000)) == 0
    sizes = [len(drawn(sampler, 10**9, 10**9, rng)) for _ in range(2000)]
    assert np.mean(sizes) == pytest.approx(1, abs=5 / np.sqrt(2000))


class Few(np.random.Generator):
    """A generator that never returns more than two gaps at once."""

    def geometric(self, p, size=None):
        return super().geometric(p, size=min(size, 2))


def test_gaps_drawn_in_several_rounds_follow_the_same_law() -> None:
    rng, inclusion = Few(np.random.Philox(7)), np.zeros((3000, 40))
    for row in inclusion:
        units = drawn(Poisson(batch_size=3), 40, 10, rng)
        assert (np.diff(units) > 0).all()
        row[units] = 1
    assert np.abs(inclusion.mean(axis=0) - 0.3).max() < 5 * np.sqrt(0.21 / 3000)
    assert inclusion.sum(axis=1).var() == pytest.approx(40 * 0.21, rel=0.15)


def test_the_event_uses_the_declared_number_of_records() -> None:
    event = Poisson(batch_size=50).event_per_period(records=500, noise_multiplier=1.5)
    assert leaves_with_counts(event) == leaves_with_counts(poisson_gaussian(sample_rate=0.1, noise_multiplier=1.5))
    assert draws(250, records=500, batch_size=50, times=2000).mean() == pytest.approx(0.1, abs=0.003)


def test_indices_are_distinct_positions() -> None:
    index = drawn(Poisson(batch_size=90), 100, 100, np.random.Generator(np.random.Philox(1)))
    assert index.dtype == np.int64
    assert len(set(index.tolist())) == len(index)
    assert index.min() >= 0
    assert index.max() < 100


def test_full_batches_and_empty_data() -> None:
    rng = np.random.Generator(np.random.Philox(1))
    assert drawn(Poisson(batch_size=100), 100, 100, rng).tolist() == list(range(100))
    assert len(drawn(Poisson(batch_size=10), 0, 100, rng)) == 0


def test_draws_at_once_are_each_within_the_data_and_in_order() -> None:
    rng = np.random.Generator(np.random.Philox(1))
    for rows, available, batch_size in ((1, 7, 3), (5, 7, 3), (6, 0, 3), (3, 10, 10), (4, 1, 1)):
        units, sizes = Poisson(batch_size=batch_size).draw_batch_indices(rows, available, 10, rng)
        assert (len(sizes), sizes.sum()) == (rows, len(units))
        for part in np.split(units, np.cumsum(sizes)[:-1]):
            assert part.tolist() == sorted(set(part.tolist()))
            assert all(0 <= unit < available for unit in part)


def test_a_batch_larger_than_the_data_is_refused() -> None:
    sampler = Poisson(batch_size=101)
    with pytest.raises(ValueError, match=r"^Expected batch_size=101 <= records=100.$"):
        sampler.event_per_period(records=100, noise_multiplier=1.0)
    with pytest.raises(ValueError, match=r"^Expected batch_size=101 <= records=100.$"):
        sampler.draw_batch_indices(1, 100, 100, np.random.Generator(np.random.Philox(1)))


def subsets(times: int, rows: int) -> np.ndarray:
    """Batches of 3 of 8 records [times, 3], `rows` at a time."""
    rng, sampler = np.random.Generator(np.random.Philox(9)), FixedSize(batch_size=3)
    found = []
    for _ in range(0, times, rows):
        units, sizes = sampler.draw_batch_indices(rows, 8, 8, rng)
        assert sizes.tolist() == [3] * rows
        found.append(units.reshape(rows, 3))
    return np.concatenate(found)


@each_way
def test_batches_of_fixed_size_are_uniform_subsets(rows) -> None:
    times = 56_000
    batches = subsets(times, rows)
    assert (np.diff(batches, axis=1) > 0).all(), "distinct, ascending"
    places = batches @ np.array([64, 8, 1])
    kinds, counts = np.unique(places, return_counts=True)
    assert len(kinds) == 56
    assert ((counts - 1000) ** 2 / 1000).sum() < 55 + 6 * np.sqrt(2 * 55)


@each_way
def test_batches_of_fixed_size_are_independent(rows) -> None:
    batches = subsets(20_000, rows)
    again = (batches[1:] == batches[:-1]).all(axis=1).mean()
    assert again == pytest.approx(1 / 56, abs=5 * np.sqrt(1 / 56 / 20_000))


def test_a_batch_of_fixed_size_is_charged_for_the_records_that_there_are_at_least() -> None:
    sampler, rng = FixedSize(batch_size=4), np.random.Generator(np.random.Philox(1))
    event = sampler.event_per_period(records=10, noise_multiplier=2.0)
    assert event == without_replacement_gaussian(records=10, batch_size=4, noise_multiplier=2.0)
    assert len(sampler.draw_batch_indices(1, 11, 10, rng)[0]) == 4
    with pytest.raises(ValueError, match=r"^Expected records=9 to be the 10 that were declared, or more\.$"):
        sampler.draw_batch_indices(1, 9, 10, rng)
    with pytest.raises(ValueError, match="sample_size=4 <= 3 records"):
        sampler.event_per_period(records=3, noise_multiplier=2.0)
    with pytest.raises(ValueError, match="batch_size"):
        FixedSize(batch_size=0)
