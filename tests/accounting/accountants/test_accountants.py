"""Laws that every accountant keeps, golden numbers of the papers, and independent implementations as oracles."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from dp_accounting.dp_event import LaplaceDpEvent
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpsweep.accounting.accountants.classical import Classical
from dpsweep.accounting.accountants.interface import Accountant, plan_epsilon
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Conversion, Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    above_threshold,
    adadp,
    black_box,
    compose,
    from_json,
    gaussian,
    noisy_count,
    noisy_max,
    non_private,
    nothing,
    output_perturbation,
    poisson_gaussian,
    random_stopping,
    repeat,
    same,
    sampled_part,
    select,
    shared_subsample,
    shuffled_gaussian,
    to_json,
    truncated_poisson_gaussian,
    without_replacement_gaussian,
    worst,
)
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.events.types import PoissonSampledDpEvent, SampledWithoutReplacementDpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.names.stored_classes import build_own

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
CONF = Path(__file__).parents[3] / "conf" / "accountant"
ACCOUNTANTS = [
    pytest.param(Rdp(), id="rdp"),
    pytest.param(Rdp(conversion=Conversion.MIRONOV), id="rdp-mironov"),
    pytest.param(Pld(), id="pld"),
    pytest.param(Prv(), id="prv"),
    pytest.param(Classical(), id="classical"),
]
ACCOUNTANTS += [
    pytest.param(one, id=one.name)
    for path in sorted(CONF.glob("*.yaml"))
    for one in build_own(yaml.safe_load(path.read_text()), "accountant").claimants
    if one not in [param.values[0] for param in ACCOUNTANTS]
]
"""These, and those of conf/accountant that are none of them."""
every_accountant = pytest.mark.parametrize("accountant", ACCOUNTANTS)


def dpsgd(steps: int, noise_multiplier: float = 1.2, sample_rate: float = 0.02) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier), steps)


LAW = NegativeBinomial.with_mean(eta=0.5, mean=5.0)
SEARCH = select(dpsgd(20), LAW)
KINDS: dict[str, DpEvent] = {
    "gaussian": gaussian(noise_multiplier=3.0),
    "poisson": dpsgd(50),
    "truncated": truncated_poisson_gaussian(records=1000, sample_rate=0.02, largest_batch=60, noise_multiplier=1.2),
    "without replacement": without_replacement_gaussian(records=1000, batch_size=20, noise_multiplier=3.0),
    "shuffled": shuffled_gaussian(epochs=3, steps=50, noise_multiplier=6.0),
    "shared": repeat(shared_subsample(sample_rate=0.02, noise_multipliers=[3.0, 4.0]), 5),
    "adadp": adadp(sample_rate=0.02, noise_multiplier=1.5, iterations=7),
    "count": noisy_count(noise_std=4.0),
    "noisy max": noisy_max(noise_scale=2.0),
    "output, added": output_perturbation(noise_std=4.0, sensitivity=1.0, adjacency=ADD),
    "output, replaced": output_perturbation(noise_std=4.0, sensitivity=1.0, adjacency=REPLACE),
    "pure claim": black_box(epsilon=0.3, delta=0.0, adjacency=ADD),
    "claim": black_box(epsilon=0.3, delta=1e-8, adjacency=REPLACE),
    "part": sampled_part(SEARCH, sample_rate=0.1),
    "worst": worst([dpsgd(30), gaussian(noise_multiplier=4.0)]),
    "negative binomial": SEARCH,
    "logarithmic": select(dpsgd(20), NegativeBinomial.with_mean(eta=0.0, mean=5.0)),
    "poisson search": select(dpsgd(20), Poisson(mean=5.0)),
    "stopped": select(dpsgd(20), LAW, limit=200),
    "random stopping": random_stopping(dpsgd(20), gamma=0.2, delta2=1e-9),
    "threshold": above_threshold(dpsgd(20), gamma=0.2, limit=200),
    "nested search": select(compose([SEARCH, noisy_count(noise_std=9.0)]), LAW),
    "mixture": compose([dpsgd(10), noisy_count(noise_std=5.0), SEARCH, noisy_max(noise_scale=9.0)]),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_adjacency = pytest.mark.parametrize("adjacency", [ADD, REPLACE])

DISCRETISATION = 1e-3
"""What a grid step that depends on the composition may change, relative."""


def priced(accountant: Accountant, event: DpEvent, adjacency: Adjacency) -> float | None:
    """The price; None where the accountant refuses, which it does with a sentence."""
    try:
        return accountant.epsilon(event, 1e-5, adjacency)
    except UnsupportedEvent as refusal:
        assert len(str(refusal).split()) > 4
        assert str(refusal).endswith(".")
        return None


@every_accountant
@every_adjacency
@every_kind
def test_every_kind_of_event_is_priced_or_refused(accountant: Accountant, adjacency: Adjacency, kind: str) -> None:
    event = KINDS[kind]
    price = priced(accountant, event, adjacency)
    if price is None:
        return
    assert 0 < price < math.inf
    assert accountant.epsilon(event, 1e-4, adjacency) <= price, "a larger delta costs less"
    more = compose([event, dpsgd(5) if adjacency is ADD else gaussian(noise_multiplier=20.0)])
    assert accountant.epsilon(more, 1e-5, adjacency) >= price * (1 - DISCRETISATION), "adding an event never lowers"
    twice = accountant.epsilon(repeat(event, 2), 1e-5, adjacency)
    assert price < twice
    assert twice == accountant.epsilon(compose([event, event]), 1e-5, adjacency), "splitting a row changes nothing"
    assert accountant.lower(event, 1e-5, adjacency) <= price
    assert accountant.epsilon(from_json(to_json(event)), 1e-5, adjacency) == price


@every_accountant
@every_kind
def test_replacing_never_costs_less(accountant: Accountant, kind: str) -> None:
    replacing, adding = (priced(accountant, KINDS[kind], adjacency) for adjacency in (REPLACE, ADD))
    if replacing is not None and adding is not None:
        assert replacing >= adding * (1 - 1e-9)


@every_kind
def test_every_kind_is_priced_by_some_accountant(kind: str) -> None:
    prices = [priced(one, KINDS[kind], adjacency) for one in (Rdp(), Pld()) for adjacency in (ADD, REPLACE)]
    assert any(prices)


@every_accountant
@every_kind
def test_unknown_events_are_refused_inside_every_kind(accountant: Accountant, kind: str) -> None:
    unknown = LaplaceDpEvent(noise_multiplier=1.0)
    wrapped = {
        "part": sampled_part(unknown, sample_rate=0.1),
        "worst": worst([unknown, dpsgd(1)]),
        "negative binomial": select(unknown, LAW),
        "poisson search": select(unknown, Poisson(mean=5.0)),
        "stopped": select(unknown, LAW, limit=200),
        "random stopping": random_stopping(unknown, gamma=0.2, delta2=1e-9),
        "threshold": above_threshold(unknown, gamma=0.2, limit=200),
    }.get(kind, compose([KINDS[kind], unknown]))
    for adjacency in (ADD, REPLACE):
        with pytest.raises(UnsupportedEvent):
            accountant.epsilon(wrapped, 1e-5, adjacency)


@pytest.mark.parametrize("accountant", [Rdp(), Pld()], ids=["rdp", "pld"])
def test_a_search_that_looks_at_nothing_costs_nothing(accountant: Accountant) -> None:
    assert accountant.epsilon(select(nothing(), LAW), 1e-5, ADD) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("accountant", [Rdp(), Pld()], ids=["rdp", "pld"])
@pytest.mark.parametrize("leak", [non_private(), gaussian(noise_multiplier=0.0)], ids=["open", "no noise"])
def test_a_leak_inside_a_search_costs_infinity(accountant: Accountant, leak: DpEvent) -> None:
    for event in (select(leak, LAW), worst([leak, dpsgd(1)]), sampled_part(select(leak, LAW), sample_rate=0.5)):
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
        once = select(run, NegativeBinomial.with_mean(eta=eta, mean=1.0))
        assert accountant.epsilon(once, 1e-5, ADD) == single, "one try is one run"
        law = NegativeBinomial.with_mean(eta=eta, mean=mean)
        luckier = NegativeBinomial.with_mean(eta=eta, mean=2 * mean)
        found = accountant.epsilon(select(run, law), 1e-5, ADD)
        assert single <= found <= accountant.epsilon(select(run, luckier), 1e-5, ADD) + 1e-9
    geometric = NegativeBinomial.with_mean(eta=1.0, mean=mean)
    liu_talwar = random_stopping(run, gamma=1 / mean, delta2=1e-10)
    by_renyi = Rdp().epsilon(select(run, geometric), 1e-5, ADD)
    assert Rdp().epsilon(liu_talwar, 1e-5, ADD) >= by_renyi >= Pld().epsilon(select(run, geometric), 1e-5, ADD)


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
    assert same(compose(parts), nested)
    assert same(select(compose(parts), LAW), select(nested, LAW))
    assert same(sampled_part(compose(parts), sample_rate=0.1), sampled_part(nested, sample_rate=0.1))
    assert same(worst([compose(parts), dpsgd(1)]), worst([dpsgd(1), nested]))
    assert from_json(to_json(compose(parts))) == compose(parts)


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0, 2.0])
def test_the_pure_limit_of_selection_is_2_plus_eta_runs(eta: float) -> None:
    """Papernot and Steinke 2022, Corollary 3: delta and E[K] do not enter."""
    pure = black_box(epsilon=0.5, delta=0.0, adjacency=ADD)
    search = select(pure, NegativeBinomial.with_mean(eta=eta, mean=10_000.0))
    assert Rdp().epsilon(search, 1e-5, ADD) == pytest.approx((2 + eta) * 0.5, rel=0.03)
    assert (1 + eta) * 0.5 < Pld().epsilon(search, 1e-5, ADD) <= (2 + eta) * 0.5 * (1 + 1e-3)


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
    assert accountant.epsilon(dpsgd(200, sample_rate=0.03), 1e-5, ADD) >= base, "more sampling never costs less"
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
    with pytest.raises(ValueError, match=r"Expected (0 < )?delta="):
        accountant.epsilon(dpsgd(1), delta, ADD)


@every_accountant
def test_the_lower_bound_is_below_every_upper_bound(accountant: Accountant) -> None:
    for event in (dpsgd(1000), dpsgd(500, 3.0), repeat(gaussian(noise_multiplier=4.0), 7)):
        lower = accountant.lower(event, 1e-5, ADD)
        assert lower <= min(other.epsilon(event, 1e-5, ADD) for other in (Rdp(), Pld(), Prv()))


def test_no_upper_bound_is_no_lower_bound() -> None:
    """Hardly any noise at all: the distribution runs off its grid, and what is lost is finite."""
    event = repeat(gaussian(noise_multiplier=0.001), 30)
    assert Pld().epsilon(event, 1e-5, ADD) == math.inf
    assert Pld().lower(event, 1e-5, ADD) == 0
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
        assert pld <= Rdp().epsilon(event, 1e-5, ADD)


@pytest.mark.parametrize(("noise_multiplier", "golden"), PAPER_A.items())
@pytest.mark.parametrize("exact", ["exact", pytest.param("grid_exact", marks=pytest.mark.long)])
def test_the_second_opinion_on_the_papers_settings(
    noise_multiplier: float, golden: dict[str, float], exact: str
) -> None:
    event = dpsgd(5000 if exact == "exact" else 35 * 5000, noise_multiplier)
    assert golden[exact] - 1e-2 < Prv().epsilon(event, 1e-5, ADD) < golden[exact] * 1.015
    assert Prv().lower(event, 1e-5, ADD) <= Pld().epsilon(event, 1e-5, ADD)
