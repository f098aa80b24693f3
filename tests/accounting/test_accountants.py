"""Laws that every accountant keeps, golden numbers of the papers, and independent implementations as oracles."""

from __future__ import annotations

import logging
import math

import pytest
from dp_accounting.dp_event import LaplaceDpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent
from dp_accounting.rdp import RdpAccountant

from accounting.accountant import Accountant, plan_epsilon
from accounting.errors import UnsupportedEvent
from accounting.events import (
    DpEvent,
    PlanEvent,
    compose,
    gaussian,
    non_private,
    nothing,
    poisson_gaussian,
    repeat,
)
from accounting.guarantee import Adjacency
from accounting.pld import Pld
from accounting.prv import Prv
from accounting.rdp import Conversion, Rdp
from accounting.renyi import sampled_gaussian_curve

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
ACCOUNTANTS = [
    pytest.param(Rdp(), id="rdp"),
    pytest.param(Rdp(conversion=Conversion.MIRONOV), id="rdp-mironov"),
    pytest.param(Pld(), id="pld"),
    pytest.param(Prv(), id="prv"),
]
every_accountant = pytest.mark.parametrize("accountant", ACCOUNTANTS)


def dpsgd(steps: int, noise_multiplier: float = 1.2, sample_rate: float = 0.02) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier), steps)


@every_accountant
def test_no_access_costs_nothing(accountant: Accountant) -> None:
    assert accountant.epsilon(nothing(), 1e-5, ADD) == 0
    assert accountant.epsilon(repeat(gaussian(noise_multiplier=1.0), 0), 1e-5, ADD) == 0
    assert accountant.epsilon(compose([]), 1e-5, ADD) == 0


@every_accountant
@pytest.mark.parametrize(
    "leak",
    [
        non_private(),
        gaussian(noise_multiplier=0.0),
        poisson_gaussian(sample_rate=0.01, noise_multiplier=0.0),
        compose([dpsgd(10), non_private()]),
    ],
    ids=repr,
)
def test_an_access_without_noise_costs_infinity(accountant: Accountant, leak: DpEvent) -> None:
    assert accountant.epsilon(leak, 1e-5, ADD) == math.inf


@every_accountant
def test_n_fold_repetition_equals_n_fold_composition(accountant: Accountant) -> None:
    step = poisson_gaussian(sample_rate=0.05, noise_multiplier=1.5)
    repeated = accountant.epsilon(repeat(repeat(step, 10), 10), 1e-5, ADD)
    composed = accountant.epsilon(compose([step] * 40 + [repeat(step, 60)]), 1e-5, ADD)
    assert repeated == pytest.approx(composed, rel=1e-12)
    assert repeated > accountant.epsilon(repeat(step, 10), 1e-5, ADD) > 0


@every_accountant
def test_the_order_of_mechanisms_is_irrelevant(accountant: Accountant) -> None:
    parts = [dpsgd(50, 1.0), dpsgd(30, 2.0), gaussian(noise_multiplier=5.0)]
    forward, backward = compose(parts), compose(reversed(parts))
    assert accountant.epsilon(forward, 1e-5, ADD) == accountant.epsilon(backward, 1e-5, ADD)


@every_accountant
def test_the_price_is_monotone(accountant: Accountant) -> None:
    base = accountant.epsilon(dpsgd(200), 1e-5, ADD)
    assert accountant.epsilon(dpsgd(400), 1e-5, ADD) > base, "more steps cost more"
    assert accountant.epsilon(dpsgd(200, noise_multiplier=1.3), 1e-5, ADD) < base, "more noise costs less"
    assert accountant.epsilon(dpsgd(200, sample_rate=0.03), 1e-5, ADD) > base, "more sampling costs more"
    assert accountant.epsilon(dpsgd(200), 1e-6, ADD) > base, "a smaller delta costs more"
    assert accountant.epsilon(compose([dpsgd(200), dpsgd(1)]), 1e-5, ADD) >= base, "one more step never lowers it"


@every_accountant
@pytest.mark.parametrize(
    "unknown",
    [
        LaplaceDpEvent(noise_multiplier=1.0),
        SampledWithoutReplacementDpEvent(source_dataset_size=100, sample_size=10, event=gaussian(noise_multiplier=1.0)),
        PoissonSampledDpEvent(sampling_probability=0.1, event=LaplaceDpEvent(noise_multiplier=1.0)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_unknown_events_are_refused_also_when_nested(accountant: Accountant, unknown: DpEvent) -> None:
    for event in (unknown, repeat(unknown, 3), compose([dpsgd(2), repeat(compose([unknown]), 2)])):
        with pytest.raises(UnsupportedEvent):
            accountant.epsilon(event, 1e-5, ADD)


@every_accountant
@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_delta_that_is_no_probability_is_refused(accountant: Accountant, delta: float) -> None:
    with pytest.raises(ValueError, match="Expected 0 < delta"):
        accountant.epsilon(dpsgd(1), delta, ADD)


@every_accountant
def test_the_lower_bound_is_below_every_upper_bound(accountant: Accountant) -> None:
    for event in (dpsgd(1000), dpsgd(500, 3.0), repeat(gaussian(noise_multiplier=4.0), 7)):
        lower = accountant.lower(event, 1e-5, ADD)
        assert lower <= min(other.epsilon(event, 1e-5, ADD) for other in (Rdp(), Pld(), Prv()))


def test_replacing_a_record_costs_at_least_as_much_as_adding_one() -> None:
    assert Pld().epsilon(dpsgd(500), 1e-5, REPLACE) > Pld().epsilon(dpsgd(500), 1e-5, ADD)
    event = gaussian(noise_multiplier=3.0)
    for accountant in (Rdp(), Pld()):
        twice = accountant.epsilon(gaussian(noise_multiplier=1.5), 1e-5, ADD)
        assert accountant.epsilon(event, 1e-5, REPLACE) == pytest.approx(twice, rel=1e-3)


def test_bounds_that_nobody_proved_are_refused() -> None:
    with pytest.raises(UnsupportedEvent, match="replace_one"):
        Rdp().epsilon(dpsgd(10), 1e-5, REPLACE)
    with pytest.raises(UnsupportedEvent, match="replace_one"):
        Prv().epsilon(dpsgd(10), 1e-5, REPLACE)
    for fourier in (Pld(), Prv()):
        for delta in (1e-16, 1e-12, 0.99e-10):
            with pytest.raises(UnsupportedEvent, match="not safe at delta"):
                fourier.epsilon(dpsgd(10), delta, ADD)
        assert fourier.epsilon(dpsgd(10), 1e-10, ADD) < math.inf
    assert Rdp().epsilon(dpsgd(10), 1e-16, ADD) < math.inf


def test_a_plan_costs_its_larger_population() -> None:
    training, scores = dpsgd(100), repeat(gaussian(noise_multiplier=1.0), 10)
    alone = {part: Pld().epsilon(event, 1e-5, ADD) for part, event in (("t", training), ("s", scores))}
    together = plan_epsilon(Pld(), PlanEvent(training=training, validation=scores), 1e-5, ADD)
    assert together == max(alone.values()) == alone["s"] > alone["t"]


# Yang, Zhang, Chen, Liu: N=50000, batch 1000, 100 epochs, delta=1e-5; the whole grid of 35 below.
PAPER_A = {
    3.6: {"mironov": 2.021, "bbghs": 1.7121, "exact": 1.5687, "grid_rdp": 13.23, "grid_exact": 12.35},
    2.0: {"mironov": 3.969, "bbghs": 3.4834, "exact": 3.2088, "grid_rdp": 30.01, "grid_exact": 28.25},
    1.2: {"mironov": 8.063, "bbghs": 7.3175, "exact": 6.7561, "grid_rdp": 73.00, "grid_exact": 69.34},
}


@pytest.mark.parametrize(("noise_multiplier", "golden"), PAPER_A.items())
def test_the_papers_settings(noise_multiplier: float, golden: dict[str, float]) -> None:
    run, grid = dpsgd(5000, noise_multiplier), dpsgd(35 * 5000, noise_multiplier)
    mironov = Rdp(conversion=Conversion.MIRONOV).epsilon(run, 1e-5, ADD)
    assert mironov == pytest.approx(golden["mironov"], abs=1e-3)
    assert Rdp().epsilon(run, 1e-5, ADD) == pytest.approx(golden["bbghs"], rel=2e-3)
    assert Rdp().epsilon(run, 1e-5, ADD) <= golden["bbghs"] + 1e-3
    assert Rdp().epsilon(grid, 1e-5, ADD) == pytest.approx(golden["grid_rdp"], rel=2e-3)
    for exact, event in (("exact", run), ("grid_exact", grid)):
        pld = Pld().epsilon(event, 1e-5, ADD)
        assert pld == pytest.approx(golden[exact], rel=1e-3)
        assert pld > golden[exact] - 5e-3, "an upper bound"
        prv = Prv().epsilon(event, 1e-5, ADD)
        assert golden[exact] - 1e-2 < prv < golden[exact] * 1.015
        assert Prv().lower(event, 1e-5, ADD) <= pld <= Rdp().epsilon(event, 1e-5, ADD)


def test_replace_one_by_privacy_loss_distributions() -> None:
    """Poisson sampling under replace-one, the same settings: an independent accountant's numbers."""
    for noise_multiplier, exact in ((3.6, 3.317), (2.0, 6.591), (1.2, 12.694)):
        assert Pld().epsilon(dpsgd(5000, noise_multiplier), 1e-5, REPLACE) == pytest.approx(exact, rel=1e-3)


def test_noisy_counts() -> None:
    """Gaussian noise on K released counts at epsilon 1, delta 1e-5: what the exact mechanism needs."""
    for releases, noise in ((1, 3.73), (10, 11.8), (35, 22.1)):
        counts = repeat(gaussian(noise_multiplier=noise), releases)
        assert Pld().epsilon(counts, 1e-5, ADD) == pytest.approx(1.0, abs=5e-3)


@pytest.mark.parametrize("order", [2, 3, 8, 64, 256])
@pytest.mark.parametrize(("sample_rate", "noise_multiplier"), [(0.01, 1.1), (0.02, 3.6), (0.2, 1.0), (0.5, 0.7)])
def test_integer_orders_agree_with_dp_accounting(order: int, sample_rate: float, noise_multiplier: float) -> None:
    oracle = RdpAccountant([order])
    oracle.compose(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier))
    (ours,) = sampled_gaussian_curve(sample_rate, noise_multiplier, (float(order),))
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
    (ours,) = sampled_gaussian_curve(sample_rate, noise_multiplier, (order,))
    assert ours == pytest.approx(exact, rel=1e-6, abs=1e-10)
    oracle = RdpAccountant([order])
    logging.getLogger("absl").setLevel(logging.ERROR)
    oracle.compose(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier))
    assert ours <= float(oracle._rdp[0]) * (1 + 1e-9)


def test_opacus_agrees() -> None:
    """Opacus' moments accountant over the same orders and conversion."""
    analysis = pytest.importorskip("opacus.accountants.analysis.rdp")
    orders = [1.5, 2.0, 4.5, 8.0, 16.0, 32.0]
    curve = analysis.compute_rdp(q=0.02, noise_multiplier=2.0, steps=5000, orders=orders)
    epsilon, _ = analysis.get_privacy_spent(orders=orders, rdp=curve, delta=1e-5)
    assert Rdp(orders=tuple(orders)).epsilon(dpsgd(5000, 2.0), 1e-5, ADD) == pytest.approx(epsilon, rel=1e-6)


def test_orders_reach_far_enough_for_tiny_deltas() -> None:
    """With orders that stop at 63 a delta of 1e-20 costs visibly more: Liu and Talwar's rule needs such deltas."""
    short = tuple(order for order in Rdp().orders if order <= 63)
    run = dpsgd(10000, 4.0, 250 / 60000)
    assert Rdp().epsilon(run, 1e-20, ADD) < Rdp(orders=short).epsilon(run, 1e-20, ADD) - 0.02
