"""Prices by RDP, PLD and PRV: laws at drawn settings, limits, bounds that nobody proved, and a paper's settings."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Conversion, Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    are_same_events,
    best_of_tries,
    black_box,
    compose,
    from_json,
    gaussian,
    no_access,
    non_private,
    poisson_sampled,
    random_stopping,
    repeat,
    to_json,
    truncated_poisson_gaussian,
    worst_of_events,
)
from dpsweep.accounting.events.trial_counts import NegativeBinomial
from dpsweep.accounting.lower_bounds.forced_epsilon import forced_epsilon
from dpsweep.accounting.upper_bounds import upper_bound
from tests.accounting.event_kinds import ADD, DISCRETISATION, KINDS, LAW, REPLACE, dpsgd


@pytest.mark.parametrize("accountant", [Rdp(), Pld()], ids=["rdp", "pld"])
def test_a_search_that_looks_at_nothing_costs_nothing(accountant: Accountant) -> None:
    assert accountant.epsilon(best_of_tries(no_access(), LAW), 1e-5, ADD) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("accountant", [Rdp(), Pld()], ids=["rdp", "pld"])
@pytest.mark.parametrize("leak", [non_private(), gaussian(noise_multiplier=0.0)], ids=["open", "no noise"])
def test_a_leak_inside_a_search_costs_infinity(accountant: Accountant, leak: DpEvent) -> None:
    for event in (
        best_of_tries(leak, LAW),
        worst_of_events([leak, dpsgd(1)]),
        poisson_sampled(best_of_tries(leak, LAW), sample_rate=0.5),
    ):
        assert accountant.epsilon(event, 1e-5, ADD) == math.inf
        assert accountant.epsilon(compose([event, dpsgd(3)]), 1e-5, ADD) == math.inf
    claim = black_box(epsilon=math.inf, delta=0.0, adjacency=ADD)
    assert accountant.epsilon(compose([claim, dpsgd(3)]), 1e-5, ADD) == math.inf
    assert accountant.epsilon(black_box(epsilon=0.1, delta=0.1, adjacency=ADD), 1e-5, ADD) == math.inf


QUICK = settings(max_examples=8, deadline=None, derandomize=True, database=None)
THOROUGH = settings(max_examples=30, deadline=None, database=None)
SETTINGS = {
    "q": st.floats(0.001, 0.5),
    "sigma": st.floats(0.6, 20.0),
    "steps": st.integers(1, 2000),
    "runs": st.integers(1, 20),
    "delta": st.floats(1e-8, 1e-2),
}


def laws_of_composition(q: float, sigma: float, steps: int, runs: int, delta: float) -> None:
    one = dpsgd(steps, sigma, q)
    grid = dpsgd(steps * runs, sigma, q)
    assume(Rdp().epsilon(grid, 1e-6, ADD) < 400)
    for accountant in (Rdp(), Pld()):
        price = accountant.epsilon(one, delta, ADD)
        whole = accountant.epsilon(grid, delta, ADD)
        assert accountant.epsilon(repeat(one, runs), delta, ADD) == whole, "a grid costs one long run"
        assert accountant.epsilon(compose([one] * runs), delta, ADD) == whole
        assert whole >= price * (1 - 1e-9)
        slack = 1 - DISCRETISATION
        assert accountant.epsilon(dpsgd(steps + 1, sigma, q), delta, ADD) >= price * slack - 1e-7
        assert accountant.epsilon(dpsgd(steps, sigma * 1.1, q), delta, ADD) <= price / slack + 1e-7
        assert accountant.epsilon(dpsgd(steps, sigma, min(1.0, q * 1.1)), delta, ADD) >= price * slack - 1e-7
        assert accountant.epsilon(one, delta / 2, ADD) >= price
    assert Pld().epsilon(grid, delta, ADD) <= Rdp().epsilon(grid, delta, ADD) * (1 + DISCRETISATION) + 1e-6
    assert Pld().epsilon(one, delta, REPLACE) >= Pld().epsilon(one, delta, ADD) - 1e-9


def laws_of_selection(q: float, sigma: float, steps: int, mean: float, eta: float) -> None:
    run = dpsgd(steps, sigma, q)
    for accountant in (Rdp(), Pld()):
        single = accountant.epsilon(run, 1e-5, ADD)
        once = best_of_tries(run, NegativeBinomial.with_mean(eta=eta, mean=1.0))
        assert accountant.epsilon(once, 1e-5, ADD) == single, "one try is one run"
        law = NegativeBinomial.with_mean(eta=eta, mean=mean)
        luckier = NegativeBinomial.with_mean(eta=eta, mean=2 * mean)
        found = accountant.epsilon(best_of_tries(run, law), 1e-5, ADD)
        assert single <= found <= accountant.epsilon(best_of_tries(run, luckier), 1e-5, ADD) + 1e-9
    geometric = NegativeBinomial.with_mean(eta=1.0, mean=mean)
    liu_talwar = random_stopping(run, gamma=1 / mean, delta2=1e-10)
    by_renyi = Rdp().epsilon(best_of_tries(run, geometric), 1e-5, ADD)
    assert Rdp().epsilon(liu_talwar, 1e-5, ADD) >= by_renyi >= Pld().epsilon(best_of_tries(run, geometric), 1e-5, ADD)


@QUICK
@given(**SETTINGS)
def test_the_laws_of_composition(q: float, sigma: float, steps: int, runs: int, delta: float) -> None:
    laws_of_composition(q, sigma, steps, runs, delta)


@QUICK
@given(
    q=SETTINGS["q"], sigma=st.floats(1.0, 20.0), steps=SETTINGS["steps"], mean=st.floats(2, 100), eta=st.floats(-0.9, 3)
)
def test_the_laws_of_selection(q: float, sigma: float, steps: int, mean: float, eta: float) -> None:
    laws_of_selection(q, sigma, steps, mean, eta)


@pytest.mark.long
@THOROUGH
@given(**SETTINGS)
def test_the_laws_of_composition_everywhere(q: float, sigma: float, steps: int, runs: int, delta: float) -> None:
    laws_of_composition(q, sigma, steps, runs, delta)


@QUICK
@given(kinds=st.permutations(sorted(KINDS)), counts=st.lists(st.integers(0, 5), min_size=4, max_size=4))
def test_order_and_nesting_are_irrelevant(kinds: list[str], counts: list[int]) -> None:
    parts = [repeat(KINDS[kind], count) for kind, count in zip(kinds[:4], counts, strict=True)]
    nested = compose([compose(parts[2:][::-1]), compose(parts[:2][::-1])])
    assert are_same_events(compose(parts), nested)
    assert are_same_events(best_of_tries(compose(parts), LAW), best_of_tries(nested, LAW))
    assert are_same_events(poisson_sampled(compose(parts), sample_rate=0.1), poisson_sampled(nested, sample_rate=0.1))
    assert are_same_events(worst_of_events([compose(parts), dpsgd(1)]), worst_of_events([dpsgd(1), nested]))
    assert from_json(to_json(compose(parts))) == compose(parts)


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0, 2.0])
def test_the_pure_limit_of_selection_is_2_plus_eta_runs(eta: float) -> None:
    """Papernot and Steinke 2022, Corollary 3: delta and E[K] do not enter."""
    pure = black_box(epsilon=0.5, delta=0.0, adjacency=ADD)
    search = best_of_tries(pure, NegativeBinomial.with_mean(eta=eta, mean=10_000.0))
    assert Rdp().epsilon(search, 1e-5, ADD) == pytest.approx((2 + eta) * 0.5, rel=0.03)
    assert (1 + eta) * 0.5 < Pld().epsilon(search, 1e-5, ADD) <= (2 + eta) * 0.5 * (1 + 1e-3)


def test_no_upper_bound_is_no_lower_bound() -> None:
    """Hardly any noise at all: the distribution runs off its grid, and what is lost is finite."""
    event = repeat(gaussian(noise_multiplier=0.001), 30)
    assert Pld().epsilon(event, 1e-5, ADD) == math.inf
    assert forced_epsilon(event, 1e-5, ADD) == 0
    assert math.isfinite(Rdp().epsilon(event, 1e-5, ADD))


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
    for fourier, least in ((Pld(), 1e-30), (Prv(), 1e-10)):
        for delta in (1e-6 * least, 0.99 * least):
            with pytest.raises(UnsupportedEvent, match="not safe at delta"):
                fourier.epsilon(dpsgd(10), delta, ADD)
        assert fourier.epsilon(dpsgd(10), least, ADD) < math.inf
    assert Rdp().epsilon(dpsgd(10), 1e-16, ADD) < math.inf


def test_a_plan_costs_its_larger_population() -> None:
    training, scores = dpsgd(100), repeat(gaussian(noise_multiplier=1.0), 10)
    alone = {part: Pld().epsilon(event, 1e-5, ADD) for part, event in (("t", training), ("s", scores))}
    together = upper_bound(PlanEvent(training=training, validation=scores), 1e-5, ADD)
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
        assert pld <= Rdp().epsilon(event, 1e-5, ADD)


@pytest.mark.parametrize(("noise_multiplier", "golden"), PAPER_A.items())
@pytest.mark.parametrize("exact", ["exact", pytest.param("grid_exact", marks=pytest.mark.long)])
def test_the_second_opinion_on_the_papers_settings(
    noise_multiplier: float, golden: dict[str, float], exact: str
) -> None:
    event = dpsgd(5000 if exact == "exact" else 35 * 5000, noise_multiplier)
    assert golden[exact] - 1e-2 < Prv().epsilon(event, 1e-5, ADD) < golden[exact] * 1.015
    assert Prv().lower(event, 1e-5, ADD) <= Pld().epsilon(event, 1e-5, ADD)


def test_a_truncated_sample_costs_more_among_more_records() -> None:
    """So its price holds for data sets of at most as many records as the event names."""

    def price(records: int) -> float:
        step = truncated_poisson_gaussian(records=records, sample_rate=0.1, largest_batch=120, noise_multiplier=4.0)
        return Pld().epsilon(repeat(step, 10), 1e-6, ADD)

    assert price(900) < price(1000) < price(1100) < price(1300)
