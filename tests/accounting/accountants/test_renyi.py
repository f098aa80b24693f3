"""The sampled Gaussian by two formulas, exact sums and the library; and the orders that prices are read at."""

from __future__ import annotations

import logging
import math
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, SampledWithoutReplacementDpEvent
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant

from dpsweep.accounting.accountants import rdp as renyi
from dpsweep.accounting.accountants.rdp import ORDERS, Rdp
from dpsweep.accounting.events.build import (
    DpEvent,
    best_of_tries,
    gaussian,
    poisson_gaussian,
    repeat,
    step_on_shared_subsample,
)
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile
from tests.accounting.library_events import to_dp_accounting

ADD = Adjacency.ADD_OR_REMOVE_ONE
EDGES = [(1e-6, 1.0), (0.02, 0.3), (0.02, 1.2), (0.5, 0.7), (0.999, 2.0), (0.02, 100.0), (0.2, 1e5)]


def exact_moment(sample_rate: float, noise_multiplier: float, order: int) -> Decimal:
    """The log-moment at an integer order, with 80 digits."""
    with localcontext() as context:
        context.prec, context.Emax = 80, MAX_EMAX
        q, precision = Decimal(sample_rate), 1 / (2 * Decimal(noise_multiplier) ** 2)
        terms = (
            math.comb(order, i) * q**i * (1 - q) ** (order - i) * (precision * (i * i - i)).exp()
            for i in range(order + 1)
        )
        return sum(terms, Decimal(0)).ln()


@pytest.mark.parametrize(("sample_rate", "noise_multiplier"), [*EDGES, (0.02, 0.05), (0.3, 0.011)])
def test_integer_orders_are_just_above_the_exact_sum(sample_rate: float, noise_multiplier: float) -> None:
    orders = (2.0, 7.0, 32.0, 300.0)
    curve = renyi.sampled_gaussian_curve(sample_rate, noise_multiplier, orders)
    for order, ours in zip(orders, curve, strict=True):
        exact = float(exact_moment(sample_rate, noise_multiplier, int(order))) / (order - 1)
        assert exact <= ours <= exact * (1 + 1e-12) + 1e-11, order


@pytest.mark.parametrize("noise_multiplier", [0.1, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("sample_rate", [1e-6, 0.02, 0.9])
def test_the_closed_bound_is_the_integral_where_it_is_taken(
    sample_rate: float, noise_multiplier: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = 1 + 2 * noise_multiplier**2 * (renyi.CLOSED - math.log(sample_rate))
    orders = tuple(last * (1 + share) for share in (1e-9, 0.1, 0.5))
    closed = renyi.sampled_gaussian_curve.__wrapped__(sample_rate, noise_multiplier, orders)
    monkeypatch.setattr(renyi, "CLOSED", math.inf)
    integrated = renyi.sampled_gaussian_curve.__wrapped__(sample_rate, noise_multiplier, orders)
    assert closed == pytest.approx(integrated, rel=1e-12)


@pytest.mark.parametrize(("sample_rate", "noise_multiplier"), [*EDGES, (0.02, 0.05)])
def test_moments_are_convex_across_integer_and_fractional_orders(sample_rate: float, noise_multiplier: float) -> None:
    orders = np.array([1.01, 1.3, 1.9, 2.0, 2.1, 5.5, 6.0, 6.5, 31.0, 31.5, 33.0])
    moments = renyi.sampled_gaussian_curve(sample_rate, noise_multiplier, tuple(orders)) * (orders - 1)
    slopes = np.diff(moments) / np.diff(orders)
    assert (np.diff(slopes) >= -1e-9 * slopes[1:] - 1e-10).all()


def test_noise_too_small_to_compute_costs_infinity() -> None:
    assert np.isinf(renyi.sampled_gaussian_curve(0.1, 0.9 * renyi.SMALLEST_NOISE, (2.0, 2.5))).all()
    assert np.isinf(renyi.without_replacement_gaussian_curve(0.1, 0.9 * renyi.SMALLEST_NOISE, (2.0, 2.5))).all()
    assert np.isfinite(renyi.sampled_gaussian_curve(0.1, renyi.SMALLEST_NOISE, (1.5, 2.0))).all()


def test_orders_rise_from_just_above_1_to_a_million() -> None:
    assert ORDERS[0] == pytest.approx(1.01)
    assert ORDERS[-1] == 2**20
    assert (np.diff(ORDERS) > 0).all()
    assert {2.0, 3.0, 31.0, 32.0} <= set(ORDERS), "sampling any mechanism is bounded at integers"


def run(noise_multiplier: float) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=noise_multiplier), 5000)


@pytest.mark.parametrize("noise_multiplier", [0.8, 1.2, 3.6])
def test_selection_prices_agree_with_the_continuous_optimum(noise_multiplier: float) -> None:
    dense = Rdp(orders=tuple(1 + np.geomspace(0.02, 60, 1500)) + tuple(float(order) for order in range(61, 1025)))
    for mean in (4.0, 10.0, 35.0, 1000.0):
        laws = [NegativeBinomial.with_mean(eta=eta, mean=mean) for eta in (-0.5, 0.0, 0.5, 1.0)]
        for law in (*laws, Poisson(mean=mean)):
            ours = Rdp().epsilon(best_of_tries(run(noise_multiplier), law), 1e-5, ADD)
            best = dense.epsilon(best_of_tries(run(noise_multiplier), law), 1e-5, ADD)
            assert best - 1e-4 <= ours <= best + max(1e-3, 3e-5 * best), law


def test_selection_never_costs_more_than_its_limit_at_order_1() -> None:
    """Papernot and Steinke, Theorem 2, at lambda-hat = 1; the least of our orders is above 1 and misses it by 0.01."""
    law = NegativeBinomial.with_mean(eta=0.0, mean=4.0)
    curve, orders = Rdp().renyi_curve(run(0.8), ADD), np.array(ORDERS)
    ours = Rdp().renyi_curve(best_of_tries(run(0.8), law), ADD)
    assert ours == pytest.approx(curve + math.log(1 / law.gamma) + math.log(4.0) / (orders - 1))


def test_orders_close_to_1_price_shared_subsamples() -> None:
    shared = repeat(step_on_shared_subsample(sample_rate=0.02, noise_multipliers=[1.2] * 35), 5000)
    assert Rdp().epsilon(shared, 1e-5, ADD) == pytest.approx(1246.1, abs=0.1)
    coarse = Rdp(orders=tuple(order for order in ORDERS if order >= 1.1))
    assert coarse.epsilon(shared, 1e-5, ADD) == pytest.approx(1587, abs=5), "what Opacus' orders give"


def test_huge_noise_does_not_floor() -> None:
    prices = [Rdp().epsilon(run(noise_multiplier), 1e-5, ADD) for noise_multiplier in (100.0, 200.0, 1e5)]
    assert prices[0] == pytest.approx(0.045, abs=1e-3)
    assert prices[0] > prices[1] > prices[2] == 0, (
        "so much noise hides everything but 1e-5; Opacus' orders stop near 0.1"
    )


@pytest.mark.parametrize(("sample_rate", "noise_multiplier"), [(0.3, 2.0), (0.01, 5.0), (1e-4, 30.0)])
def test_large_orders_are_the_sum(sample_rate: float, noise_multiplier: float) -> None:
    orders = (1500, 4096)
    curve = renyi.sampled_gaussian_curve(sample_rate, noise_multiplier, tuple(map(float, orders)))
    for order, ours in zip(orders, curve, strict=True):
        exact = float(exact_moment(sample_rate, noise_multiplier, order)) / (order - 1)
        assert ours == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_orders_too_large_for_a_sum_are_infinite() -> None:
    at = (512.0, 2.0**19)
    for curve in (
        renyi.without_replacement_gaussian_curve(0.1, 1.0, at),
        renyi.poisson_sampled_curve(0.1, np.array(at), lambda orders: orders / 2),
    ):
        assert np.isfinite(curve).tolist() == [True, False]


@pytest.mark.parametrize("noise_multiplier", [300.0, 1000.0, 3000.0])
def test_tiny_epsilons_are_a_fourth_above_the_truth_at_most(noise_multiplier: float) -> None:
    exact = GaussianProfile(mu=1 / noise_multiplier).epsilon(1e-5)
    assert exact < Rdp().epsilon(gaussian(noise_multiplier=noise_multiplier), 1e-5, ADD) < 1.27 * exact


@pytest.mark.parametrize("order", [2.0, 5.0, 16.0])
@pytest.mark.parametrize(("batch_size", "noise_multiplier"), [(10, 1.2), (100, 3.6)])
def test_sampling_without_replacement_is_not_above_dp_accounting(
    order: float, batch_size: int, noise_multiplier: float
) -> None:
    oracle = RdpAccountant([order], NeighboringRelation.REPLACE_ONE)
    one = GaussianDpEvent(noise_multiplier=noise_multiplier)
    oracle.compose(SampledWithoutReplacementDpEvent(source_dataset_size=1000, sample_size=batch_size, event=one))
    (ours,) = renyi.without_replacement_gaussian_curve(batch_size / 1000, noise_multiplier, (order,))
    assert 0.5 * float(oracle._rdp[0]) < ours <= float(oracle._rdp[0]) * (1 + 1e-9)


@pytest.mark.parametrize("noise_multiplier", [0.0101, 0.3, 1e5, 1e7])
def test_sampling_without_replacement_stands_extreme_noise(noise_multiplier: float) -> None:
    orders = np.array([order for order in ORDERS if order <= renyi.LARGEST_SUMMED])
    curve = renyi.without_replacement_gaussian_curve(0.02, noise_multiplier, tuple(orders))
    unsampled = orders / (2 * noise_multiplier**2)
    assert (curve > 0).all()
    assert (curve[orders >= 2] <= 2 * unsampled[orders >= 2] + 1e-9).all()


def test_sampling_any_mechanism_costs_less_than_the_mechanism_and_more_than_the_tight_formula() -> None:
    orders = np.array([1.5, 2.0, 3.5, 8.0])

    def gaussian(at: np.ndarray) -> np.ndarray:
        return at / (2 * 4.0**2)

    ours = renyi.poisson_sampled_curve(0.05, orders, gaussian)
    tight = renyi.sampled_gaussian_curve(0.05, 4.0, tuple(orders))
    assert (tight[1:] <= ours[1:] + 1e-11).all()
    assert (ours[1:] <= gaussian(orders)[1:]).all()
    assert (renyi.poisson_sampled_curve(1.0, orders, gaussian) == gaussian(orders)).all()


@pytest.mark.parametrize("noise", [0.05, 0.8, 4.0, 1e4])
def test_central_moments_are_the_alternating_sums(noise: float) -> None:
    """With 400 digits, where the smallest moment is about noise^-64."""
    central = renyi._log_central_moments(noise)
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 400, MAX_EMAX, MIN_EMIN
        powers = [(Decimal(i * (i - 1)) / (2 * Decimal(noise) ** 2)).exp() for i in range(65)]
        for j in (2, 4, 30, 64):
            exact = sum(((-1) ** (j - i) * math.comb(j, i) * powers[i] for i in range(j + 1)), Decimal(0)).ln()
            assert 0 <= central[j // 2 - 1] - float(exact) <= 1e-9 * (1 + abs(float(exact)))


def test_a_pure_mechanism_is_bounded_by_its_epsilon_and_by_half_its_square() -> None:
    orders = np.array(ORDERS)
    for epsilon in (1e-3, 0.5, 4.0, 800.0):
        curve = renyi.pure_dp_curve(epsilon, orders)
        assert (curve <= np.minimum(epsilon, orders * epsilon**2 / 2 + 1e-11)).all()
        assert curve[-1] == pytest.approx(epsilon, rel=0.7 if epsilon < 1e-2 else 0.01)
    assert np.isinf(renyi.pure_dp_curve(math.inf, orders)).all()


@pytest.mark.parametrize("order", [2, 3, 8, 64, 256])
@pytest.mark.parametrize(("sample_rate", "noise_multiplier"), [(0.01, 1.1), (0.02, 3.6), (0.2, 1.0), (0.5, 0.7)])
def test_integer_orders_agree_with_dp_accounting(order: int, sample_rate: float, noise_multiplier: float) -> None:
    oracle = RdpAccountant([order])
    oracle.compose(to_dp_accounting(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier)))
    (ours,) = renyi.sampled_gaussian_curve(sample_rate, noise_multiplier, (float(order),))
    assert ours == pytest.approx(float(oracle._rdp[0]), rel=1e-9)


@pytest.mark.parametrize("order", [1.02, 1.25, 1.5, 1.75, 2.5, 3.7, 6.3])
@pytest.mark.parametrize(("sample_rate", "noise_multiplier"), [(0.01, 1.1), (0.02, 3.6), (0.2, 1.0), (0.5, 0.7)])
def test_fractional_orders_are_the_integral(order: float, sample_rate: float, noise_multiplier: float) -> None:
    """The divergence of the mixture from the Gaussian, integrated numerically; dp-accounting is never below."""
    from scipy.integrate import quad

    def integrand(x: float) -> float:
        ratio = 1 - sample_rate + sample_rate * math.exp((2 * x - 1) / (2 * noise_multiplier**2))
        return math.exp(-(x**2) / (2 * noise_multiplier**2)) * ratio**order

    reach = noise_multiplier * 12 + order
    moment = quad(integrand, -reach, reach, limit=500, epsabs=0, epsrel=1e-12)[0]
    exact = math.log(moment / (noise_multiplier * math.sqrt(2 * math.pi))) / (order - 1)
    (ours,) = renyi.sampled_gaussian_curve(sample_rate, noise_multiplier, (order,))
    assert ours == pytest.approx(exact, rel=1e-6, abs=1e-10)
    oracle = RdpAccountant([order])
    logging.getLogger("absl").setLevel(logging.ERROR)
    oracle.compose(to_dp_accounting(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier)))
    assert ours <= float(oracle._rdp[0]) * (1 + 1e-9)


def test_opacus_agrees() -> None:
    """Opacus' moments accountant over the same orders and conversion."""
    analysis = pytest.importorskip("opacus.accountants.analysis.rdp")
    orders = [1.5, 2.0, 4.5, 8.0, 16.0, 32.0]
    curve = analysis.compute_rdp(q=0.02, noise_multiplier=2.0, steps=5000, orders=orders)
    epsilon, _ = analysis.get_privacy_spent(orders=orders, rdp=curve, delta=1e-5)
    assert Rdp(orders=tuple(orders)).epsilon(run(2.0), 1e-5, ADD) == pytest.approx(epsilon, rel=1e-6)


def test_orders_reach_far_enough_for_tiny_deltas() -> None:
    """With orders that stop at 63 a delta of 1e-20 costs visibly more: Liu and Talwar's rule needs such deltas."""
    short = tuple(order for order in Rdp().orders if order <= 63)
    long = repeat(poisson_gaussian(sample_rate=250 / 60000, noise_multiplier=4.0), 10_000)
    assert Rdp().epsilon(long, 1e-20, ADD) < Rdp(orders=short).epsilon(long, 1e-20, ADD) - 0.02
