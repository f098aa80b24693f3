"""Poisson sampling: inclusion by independent coins of the declared bias, and the event that says so."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.events import flatten, poisson_gaussian
from trainers.sampling import Poisson


def draws(available: int, records: int, batch_size: int, times: int) -> np.ndarray:
    rng = np.random.Generator(np.random.Philox(7))
    inclusion = np.zeros((times, available))
    for row in inclusion:
        row[Poisson(batch_size=batch_size).draw(available, records, rng)] = 1
    return inclusion


def test_each_record_is_included_at_the_declared_rate() -> None:
    available, rate, times = 400, 50 / 500, 4000
    inclusion = draws(available, records=500, batch_size=50, times=times)
    by_record = inclusion.mean(axis=0)
    assert by_record.mean() == pytest.approx(rate, abs=5 * np.sqrt(rate * (1 - rate) / times / available))
    assert np.abs(by_record - rate).max() < 5 * np.sqrt(rate * (1 - rate) / times)


def test_batch_sizes_are_binomial() -> None:
    available, rate, times = 400, 0.1, 4000
    sizes = draws(available, records=500, batch_size=50, times=times).sum(axis=1)
    variance = available * rate * (1 - rate)
    assert sizes.mean() == pytest.approx(available * rate, abs=5 * np.sqrt(variance / times))
    assert sizes.var() == pytest.approx(variance, rel=5 * np.sqrt(2 / times))


def test_records_and_steps_are_independent() -> None:
    inclusion = draws(100, records=200, batch_size=40, times=5000)
    within = np.corrcoef(inclusion.T) - np.eye(100)
    between = np.corrcoef(inclusion[1:].ravel(), inclusion[:-1].ravel())[0, 1]
    assert np.abs(within).max() < 6 / np.sqrt(5000)
    assert abs(between) < 5 / np.sqrt(inclusion[1:].size)


def test_the_event_uses_the_declared_number_of_records() -> None:
    event = Poisson(batch_size=50).event(records=500, noise_multiplier=1.5)
    assert flatten(event) == flatten(poisson_gaussian(sample_rate=0.1, noise_multiplier=1.5))
    assert draws(250, records=500, batch_size=50, times=2000).mean() == pytest.approx(0.1, abs=0.003)


def test_indices_are_distinct_positions() -> None:
    index = Poisson(batch_size=90).draw(100, 100, np.random.Generator(np.random.Philox(1)))
    assert index.dtype == np.int64
    assert len(set(index.tolist())) == len(index)
    assert index.min() >= 0
    assert index.max() < 100


def test_full_batches_and_empty_data() -> None:
    rng = np.random.Generator(np.random.Philox(1))
    assert Poisson(batch_size=100).draw(100, 100, rng).tolist() == list(range(100))
    assert len(Poisson(batch_size=10).draw(0, 100, rng)) == 0


def test_a_batch_larger_than_the_data_is_refused() -> None:
    sampler = Poisson(batch_size=101)
    with pytest.raises(ValueError, match=r"^Expected batch_size=101 <= records=100.$"):
        sampler.event(records=100, noise_multiplier=1.0)
    with pytest.raises(ValueError, match=r"^Expected batch_size=101 <= records=100.$"):
        sampler.draw(100, 100, np.random.Generator(np.random.Philox(1)))
