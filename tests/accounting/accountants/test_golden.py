"""Numbers of papers and of independent implementations, and the classic mistakes that they catch."""

from __future__ import annotations

import logging
import math

import pytest
from dp_accounting.dp_event import (
    GaussianDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from prv_accountant import PRVAccountant
from prv_accountant.privacy_random_variables import PoissonSubsampledGaussianMechanism
from scipy.optimize import brentq

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import ORDERS, Conversion, Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    best_of_tries,
    compose,
    gaussian,
    noisy_count,
    noisy_max,
    poisson_gaussian,
    random_stopping,
    repeat,
    shuffled_gaussian,
    step_on_shared_subsample,
    truncated_poisson_gaussian,
    without_replacement_gaussian,
)
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.guarantee import Adjacency
from tests.accounting.library_events import to_dp_accounting

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
MIRONOV = Rdp(conversion=Conversion.MIRONOV)


def dpsgd(noise_multiplier: float, steps: int = 5000, sample_rate: float = 0.02) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier), steps)


def test_roberta_on_sst2() -> None:
    """Yang, Zhang, Chen, Liu 2022 claim 8 at noise multiplier .635, 67349 sentences, 673 steps."""
    run = dpsgd(0.635, 673, 1000 / 67349)
    assert Pld().epsilon(run, 1e-5, ADD) == pytest.approx(7.559, abs=2e-2)
    assert Rdp().epsilon(run, 1e-5, ADD) == pytest.approx(8.75, abs=5e-2)


@pytest.mark.parametrize(
    ("accountant", "event", "expected"),
    [
        (Pld(), repeat(dpsgd(3.6), 10), 5.780),
        (Rdp(), repeat(dpsgd(3.6), 10), 6.233),
        (Rdp(), random_stopping(dpsgd(3.6), gamma=0.1, delta2=1e-20), 10.01),
        (MIRONOV, random_stopping(dpsgd(3.6), gamma=0.1, delta2=1e-20), 10.61),
        (Rdp(), best_of_tries(dpsgd(3.6), NegativeBinomial.with_mean(eta=1.0, mean=10.0)), 3.481),
        (Rdp(), best_of_tries(dpsgd(3.6), NegativeBinomial.with_mean(eta=0.5, mean=10.0)), 3.216),
        (Rdp(), best_of_tries(dpsgd(3.6), NegativeBinomial.with_mean(eta=0.0, mean=10.0)), 2.918),
        (Rdp(), best_of_tries(dpsgd(3.6), NegativeBinomial.with_mean(eta=-0.5, mean=10.0)), 2.569),
        (Rdp(), best_of_tries(dpsgd(3.6), Poisson(mean=10.0)), 3.892),
        (Pld(), repeat(dpsgd(1.2), 35), 69.34),
        (Rdp(), random_stopping(dpsgd(1.2), gamma=1 / 35, delta2=1e-20), 41.7),
        (Rdp(), best_of_tries(dpsgd(1.2), NegativeBinomial.with_mean(eta=1.0, mean=35.0)), 13.99),
    ],
)
def test_ten_tries_and_a_grid_of_35(accountant: Accountant, event: DpEvent, expected: float) -> None:
    """q = .02, 5000 steps: Papernot and Steinke 2022; Liu and Talwar 2019."""
    assert accountant.epsilon(event, 1e-5, ADD) == pytest.approx(expected, rel=1e-3, abs=2e-3)


GEOMETRIC, LOGARITHMIC = 1.0, 0.0


@pytest.mark.parametrize(
    ("noise", "eta", "expected"),
    [
        (3.6, GEOMETRIC, {4: 2.067, 10: 2.392, 35: 2.825, 100: 3.173}),
        (3.6, LOGARITHMIC, {4: 2.008, 10: 2.256, 35: 2.559, 100: 2.790}),
        (2.0, GEOMETRIC, {4: 4.148, 10: 4.761, 35: 5.575, 100: 6.226}),
        (1.2, GEOMETRIC, {35: 11.15}),
    ],
)
def test_the_envelope_gives_the_reference_prices_of_selection(
    noise: float, eta: float, expected: dict[int, float]
) -> None:
    """q = .02, 5000 steps; the reference was computed with another accountant, on other cells."""
    for mean, epsilon in expected.items():
        search = best_of_tries(dpsgd(noise), NegativeBinomial.with_mean(eta=eta, mean=float(mean)))
        assert Pld().epsilon(search, 1e-5, ADD) == pytest.approx(epsilon, rel=0.006)


@pytest.mark.parametrize(("total", "noise"), [(2.0, 4.98), (4.0, 2.66), (8.0, 1.51)])
def test_the_noise_of_a_search_of_35_expected_tries(total: float, noise: float) -> None:
    """At most 1 % above the reference, and not more than 2 % below it, whose accountant rounds more."""
    law = NegativeBinomial.with_mean(eta=1.0, mean=35.0)
    assert Pld().epsilon(best_of_tries(dpsgd(1.01 * noise), law), 1e-5, ADD) <= total
    assert Pld().epsilon(best_of_tries(dpsgd(0.98 * noise), law), 1e-5, ADD) > total


def by_cap(noise_multiplier: float, cap: int) -> DpEvent:
    step = truncated_poisson_gaussian(
        records=50_000, sample_rate=0.02, largest_batch=cap, noise_multiplier=noise_multiplier
    )
    return repeat(step, 5000)


def fixed_size(noise_multiplier: float) -> DpEvent:
    step = without_replacement_gaussian(records=50_000, batch_size=1000, noise_multiplier=noise_multiplier)
    return repeat(step, 5000)


@pytest.mark.parametrize(
    ("noise_multiplier", "poisson", "replaced", "forced", "fixed", "fixed_renyi", "shuffled", "capped"),
    [
        (3.6, 1.569, 3.317, 3.690, 4.414, 9.018, 15.10, (2.181, 1.579, 1.5688)),
        (2.0, 3.209, 6.591, 9.402, 12.153, 20.99, 33.10, (4.554, 3.233, 3.209)),
        (1.2, 6.756, 12.694, 33.89, 43.85, 74.05, 69.46, (11.76, 6.923, 6.756)),
    ],
)
def test_the_sampler_is_the_one_that_is_charged(
    noise_multiplier: float,
    poisson: float,
    replaced: float,
    forced: float,
    fixed: float,
    fixed_renyi: float,
    shuffled: float,
    capped: tuple[float, float, float],
) -> None:
    """50000 records, batches of 1000, 5000 steps; `forced` is what an explicit attack on fixed-size batches proves."""
    close = {"rel": 1.5e-3}
    assert Pld().epsilon(dpsgd(noise_multiplier), 1e-5, ADD) == pytest.approx(poisson, **close)
    assert Pld().epsilon(dpsgd(noise_multiplier), 1e-5, REPLACE) == pytest.approx(replaced, **close)
    assert Pld().epsilon(fixed_size(noise_multiplier), 1e-5, REPLACE) == pytest.approx(fixed, **close)
    assert Rdp().epsilon(fixed_size(noise_multiplier), 1e-5, REPLACE) == pytest.approx(fixed_renyi, **close)
    epochs = shuffled_gaussian(epochs=100, steps=50, noise_multiplier=noise_multiplier)
    assert Pld().epsilon(epochs, 1e-5, ADD) == pytest.approx(shuffled, **close)
    for cap, expected in zip((1050, 1100, 1150), capped, strict=True):
        assert Pld().epsilon(by_cap(noise_multiplier, cap), 1e-5, ADD) == pytest.approx(expected, **close)
    assert forced < fixed < fixed_renyi


def test_shared_subsamples() -> None:
    shared = repeat(step_on_shared_subsample(sample_rate=0.02, noise_multipliers=[1.2] * 35), 5000)
    assert 1200 < Rdp().epsilon(shared, 1e-5, ADD) < 1587
    assert 1100 < Pld().epsilon(shared, 1e-5, ADD) < Rdp().epsilon(shared, 1e-5, ADD)


@pytest.mark.parametrize(("target", "more"), [(1.0, 1.012), (2.0, 1.034), (4.0, 1.10), (8.0, 1.25)])
def test_shared_subsamples_need_little_more_noise_where_noise_is_chosen_for_the_total(
    target: float, more: float
) -> None:
    apart = brentq(lambda noise: Rdp().epsilon(dpsgd(noise, 35 * 5000), 1e-5, ADD) - target, 1, 60, rtol=1e-5)
    shared = brentq(lambda noise: Rdp().epsilon(dpsgd(noise / math.sqrt(35)), 1e-5, ADD) - target, 1, 60, rtol=1e-5)
    assert shared / apart == pytest.approx(more, abs=5e-3)


def growing_noise() -> DpEvent:
    """Koskela and Honkela's schedule: sigma (1 + t / 20) for t < 20, ten steps each, then 100 steps at twice sigma."""
    steps = [dpsgd(1.2 * (1 + t / 20), 10, 0.01) for t in range(20)]
    return compose([*steps, dpsgd(2.4, 100, 0.01)])


def test_noise_that_grows() -> None:
    exact = 0.404515
    assert exact - 1e-5 < Pld().epsilon(growing_noise(), 1e-5, ADD) < exact * 1.003
    opacus = tuple([1 + x / 10 for x in range(1, 100)] + [float(order) for order in range(12, 64)])
    assert Rdp(orders=opacus).epsilon(growing_noise(), 1e-5, ADD) == pytest.approx(0.746, abs=1e-3)
    assert exact < Rdp().epsilon(growing_noise(), 1e-5, ADD) < 0.739, "between two of Opacus' orders"
    assert Prv().lower(growing_noise(), 1e-5, ADD) <= exact + 1e-6


@pytest.mark.long
def test_thousands_of_kinds_of_step_are_rounded_down_by_little() -> None:
    """sigma min(2, 1 + t / T) over 5000 steps of 35 runs: 37.681 with 400 kinds."""
    event = compose([dpsgd(1.2 * (1 + t / 5000), 35) for t in range(5000)])
    assert 37.68 < Pld().epsilon(event, 1e-5, ADD) < 37.681 * 1.015
    assert 37.68 < Rdp().epsilon(event, 1e-5, ADD) < 40.0


@pytest.mark.parametrize(("releases", "noise"), [(1, 3.73), (10, 11.8), (35, 22.1)])
def test_noisy_counts(releases: int, noise: float) -> None:
    """Correct predictions under both adjacencies: Balle and Wang 2018, at epsilon 1 and delta 1e-5."""
    for adjacency in (ADD, REPLACE):
        assert Pld().epsilon(repeat(noisy_count(noise_std=noise), releases), 1e-5, adjacency) == pytest.approx(
            1.0, abs=5e-3
        )


def test_report_noisy_max() -> None:
    assert Pld().epsilon(noisy_max(noise_scale=2.0), 1e-9, REPLACE) == pytest.approx(1.0, abs=1e-6)
    assert Pld().epsilon(noisy_max(noise_scale=1.0), 1e-9, ADD) == pytest.approx(1.0, abs=1e-6)


GRID = [(0.01, 1.1, 1000), (0.05, 2.0, 300), (0.3, 5.0, 100), (0.001, 0.7, 5000)]


@pytest.mark.parametrize(("sample_rate", "noise_multiplier", "steps"), GRID)
def test_independent_accountants_agree(sample_rate: float, noise_multiplier: float, steps: int) -> None:
    event = dpsgd(noise_multiplier, steps, sample_rate)
    library = PLDAccountant(value_discretization_interval=1e-4)
    library.compose(to_dp_accounting(event))
    assert Pld().epsilon(event, 1e-5, ADD) == pytest.approx(library.get_epsilon(1e-5), rel=1e-4)
    variable = PoissonSubsampledGaussianMechanism(noise_multiplier=noise_multiplier, sampling_probability=sample_rate)
    prv = PRVAccountant([variable], eps_error=0.02, delta_error=1e-8, max_self_compositions=[steps])
    lower, middle, upper = prv.compute_epsilon(1e-5, [steps])
    assert lower <= Pld().epsilon(event, 1e-5, ADD) <= upper
    assert middle < upper - 1e-3, "the middle value is no bound"
    assert Prv().epsilon(event, 1e-5, ADD) >= Pld().epsilon(event, 1e-5, ADD) - 1e-3
    logging.getLogger("absl").setLevel(logging.ERROR)
    opacus = pytest.importorskip("opacus.accountants.analysis.rdp")
    orders = [*(1 + x / 10 for x in range(1, 100)), *range(12, 64)]
    curve = opacus.compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=steps, orders=orders)
    epsilon, _ = opacus.get_privacy_spent(orders=orders, rdp=curve, delta=1e-5)
    assert epsilon * 0.995 <= Rdp().epsilon(event, 1e-5, ADD) <= epsilon * (1 + 1e-4)


@pytest.mark.parametrize("mean", [4.0, 35.0])
@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0, math.inf])
def test_dp_accounting_prices_searches_alike(eta: float, mean: float) -> None:
    """At the same orders; infinity is the library's shape of the Poisson law."""
    law = Poisson(mean=mean) if eta == math.inf else NegativeBinomial.with_mean(eta=eta, mean=mean)
    step = PoissonSampledDpEvent(sampling_probability=0.02, event=GaussianDpEvent(noise_multiplier=3.6))
    orders = [*range(2, 64), *range(64, 257, 16)]
    library = RdpAccountant(orders)
    library.compose(RepeatAndSelectDpEvent(event=SelfComposedDpEvent(event=step, count=1000), mean=mean, shape=eta))
    ours = Rdp(orders=tuple(orders)).epsilon(best_of_tries(dpsgd(3.6, 1000), law), 1e-5, ADD)
    assert ours == pytest.approx(library.get_epsilon(1e-5), rel=1e-6)


class TestClassicMistakes:
    """Each mistake is made here on purpose: the number that guards against it would not pass."""

    def test_orders_that_stop_at_63(self) -> None:
        """Table 3 of Koskela and Honkela on MNIST by Liu and Talwar: Opacus' default orders give 3.174."""
        run = dpsgd(4.0, 10_000, 250 / 60_000)
        search = random_stopping(run, gamma=1 / 40, delta2=1e-20)
        capped = Rdp(conversion=Conversion.MIRONOV, orders=tuple(order for order in ORDERS if order <= 63))
        assert MIRONOV.epsilon(search, 1e-6, ADD) == pytest.approx(3.009, abs=0.012)
        assert capped.epsilon(search, 1e-6, ADD) == pytest.approx(3.174, abs=0.012)

    def test_the_noise_of_adding_a_record_where_one_is_replaced(self) -> None:
        event = gaussian(noise_multiplier=3.6)
        for accountant in (Rdp(), Pld()):
            right, wrong = (accountant.epsilon(event, 1e-5, adjacency) for adjacency in (REPLACE, ADD))
            halved = accountant.epsilon(gaussian(noise_multiplier=1.8), 1e-5, ADD)
            assert right == pytest.approx(halved, rel=1e-9)
            assert wrong < 0.55 * right
        half_as_noisy = repeat(
            without_replacement_gaussian(records=50_000, batch_size=1000, noise_multiplier=7.2), 5000
        )
        assert Rdp().epsilon(half_as_noisy, 1e-5, REPLACE) < 0.6 * 9.018, "what sigma instead of sigma / 2 would say"

    def test_the_middle_value_of_prv(self) -> None:
        variable = PoissonSubsampledGaussianMechanism(noise_multiplier=1.2, sampling_probability=0.02)
        prv = PRVAccountant([variable], eps_error=0.0366, delta_error=1e-8, max_self_compositions=[5000])
        _, middle, upper = prv.compute_epsilon(1e-5, [5000])
        ours = Prv().epsilon(dpsgd(1.2), 1e-5, ADD)
        assert ours == pytest.approx(upper, abs=2e-3)
        assert ours > middle + 0.02

    def test_fourier_transforms_at_tiny_deltas(self) -> None:
        library = PLDAccountant(value_discretization_interval=1e-4)
        library.compose(to_dp_accounting(dpsgd(1.2)))
        assert library.get_epsilon(1e-16) == math.inf, "what a claim at that delta would say"
        with pytest.raises(UnsupportedEvent, match="not safe at delta"):
            Prv().epsilon(dpsgd(1.2), 1e-16, ADD)
        tilted = Pld().epsilon(dpsgd(1.2), 1e-16, ADD)
        assert 0.85 * Rdp().epsilon(dpsgd(1.2), 1e-16, ADD) < tilted < Rdp().epsilon(dpsgd(1.2), 1e-16, ADD)

    def test_a_poisson_search_without_its_delta(self) -> None:
        """Theorem 6 with delta_h = 0 would say 1 less."""
        curve, law = Rdp().renyi_curve(dpsgd(3.6), ADD), Poisson(mean=10.0)
        wrong = min(
            divergence + math.log(10) / (order - 1) + math.log1p(-1 / order) - math.log(1e-5 * order) / (order - 1)
            for order, divergence in zip(ORDERS, curve, strict=True)
        )
        assert Rdp().epsilon(best_of_tries(dpsgd(3.6), law), 1e-5, ADD) == pytest.approx(3.892, abs=2e-3)
        assert wrong < 3.892 - 0.5

    def test_the_factor_2_of_delta1(self) -> None:
        """sqrt(2 delta1) T = delta - delta2; without the 2 the price is visibly too low."""
        search, limit = random_stopping(dpsgd(3.6), gamma=0.1, delta2=1e-20), math.ceil(10 * math.log(1e20))
        right, wrong = (3 * Rdp().epsilon(dpsgd(3.6), (1e-5 / limit) ** 2 / factor, ADD) for factor in (2, 1))
        ours = Rdp().epsilon(search, 1e-5, ADD)
        assert ours == pytest.approx(right, abs=1e-4)
        assert ours > wrong + 0.05

    def test_a_composition_that_forgets_how_often(self) -> None:
        for accountant in (Rdp(), Pld(), Prv()):
            once, grid = (accountant.epsilon(repeat(dpsgd(3.6, 500), runs), 1e-5, ADD) for runs in (1, 10))
            assert grid > 2.9 * once
