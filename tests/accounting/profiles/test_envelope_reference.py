"""docs/examples/envelope_bound.py, which people copy, says what our bound and our attack say."""

from __future__ import annotations

import math
import runpy
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.events.build import best_of_tries, gaussian, poisson_gaussian
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial, Poisson, Tries
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.likelihood_ratio import LatticePmf
from dpsweep.accounting.lower_bounds.selection_attack import epsilon_forced_by_two_cuts
from dpsweep.accounting.profiles.selection_envelope import BestOf
from tests.accounting.finite import Pairs, best, cases, probabilities
from tests.accounting.theorem_bounds import Exact
from tests.source_files import ROOT, imports

FILE = ROOT / "docs" / "examples" / "envelope_bound.py"
REFERENCE: dict[str, Any] = runpy.run_path(str(FILE))
DELTA, CELLS = 1e-5, 20_000
LONGEST = 95
Pair = tuple[np.ndarray, np.ndarray]


def on_intervals(cells: int, rate: float = 1.0, noise: float = 1.0) -> Pair:
    """A Poisson-sampled Gaussian step with a record and without it, as masses of intervals."""
    z = np.concatenate([[-np.inf], np.linspace(-6.0, 7.0, cells - 1), [np.inf]])

    def masses(shift: float) -> np.ndarray:
        low, high = (z[:-1] - shift) / noise, (z[1:] - shift) / noise
        return np.where(low < 0, ndtr(high) - ndtr(low), ndtr(-low) - ndtr(-high))

    return rate * masses(1.0) + (1 - rate) * masses(0.0), masses(0.0)


def randomized_response(epsilon: float, leak: float = 0.0) -> Pair:
    """Randomized response that names the data set with probability `leak`."""
    yes = math.exp(epsilon) / (1 + math.exp(epsilon))
    p = (1 - leak) * np.array([yes, 1 - yes])
    return (p, p[::-1].copy()) if not leak else (np.array([leak, 0.0, *p]), np.array([0.0, leak, *p[::-1]]))


MECHANISMS = {
    "Gaussian": on_intervals(60),
    "subsampled Gaussian": on_intervals(60, rate=0.1, noise=0.8),
    "randomized response": randomized_response(1.0),
}


def negative_binomial(eta: float, mean: float) -> tuple[Any, Tries]:
    law = NegativeBinomial.with_mean(eta=eta, mean=mean)
    return REFERENCE["negative_binomial"](eta, law.gamma), law


LAWS: dict[str, tuple[Any, Tries]] = {
    "geometric": negative_binomial(1.0, 35.0),
    "eta .1": negative_binomial(0.1, 10.0),
    "logarithmic": negative_binomial(0.0, 35.0),
    "eta -.5": negative_binomial(-0.5, 10.0),
    "Poisson": (REFERENCE["poisson"](35.0), Poisson(mean=35.0)),
    "fixed": (REFERENCE["fixed"](10), EachPoint(count=10)),
}


@dataclass(frozen=True)
class Drawn:
    """Tries whose points are drawn: a fixed number of them is no `EachPoint`, whose points may be unlike."""

    law: Tries

    @property
    def mean(self) -> float:
        return self.law.mean

    def generating_function_slope(self, x: np.ndarray) -> np.ndarray:
        return self.law.generating_function_slope(x)


def drawn(p: np.ndarray, q: np.ndarray, tries: Tries) -> float:
    law: Any = Drawn(tries)
    return BestOf(Exact(Pairs(p[None], q[None])), law).epsilon(DELTA)


@pytest.mark.parametrize("law", LAWS)
def test_a_law_is_the_slope_of_ours(law: str) -> None:
    slope, tries = LAWS[law]
    points = np.linspace(0.0, 1.0, 50)
    np.testing.assert_allclose(slope(points), tries.generating_function_slope(points), rtol=1e-9)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_reference_bound_and_attack_are_ours(mechanism: str, law: str) -> None:
    (p, q), (slope, tries) = MECHANISMS[mechanism], LAWS[law]
    bound = REFERENCE["epsilon_bound"](p, q, slope, DELTA, cells=CELLS)
    attack = REFERENCE["epsilon_attack"](p, q, slope, DELTA)
    ours = drawn(p, q, tries)
    forced = epsilon_forced_by_two_cuts(LatticePmf(present=p, instead=q, lost=0.0), tries, DELTA)
    assert 0 < attack <= bound < math.inf
    assert ours - 5e-3 <= bound <= ours + 0.02 * max(1.0, ours)
    assert forced - 1e-5 <= attack <= forced + 0.02


@pytest.mark.parametrize("law", LAWS)
def test_finer_cells_only_lower_the_bound(law: str) -> None:
    (p, q), (slope, tries) = MECHANISMS["subsampled Gaussian"], LAWS[law]
    coarse, fine = (REFERENCE["epsilon_bound"](p, q, slope, DELTA, cells=cells) for cells in (5000, 40_000))
    assert fine <= coarse
    assert fine == pytest.approx(drawn(p, q, tries), rel=5e-3)


@pytest.mark.parametrize("law", ["few", "Poisson", "fixed"])
def test_no_order_of_the_outcomes_exceeds_the_bound_and_the_best_reaches_the_attack(law: str) -> None:
    slope, tries = (LAWS | {"few": negative_binomial(0.5, 3.0)})[law]
    chances = np.eye(11)[10] if law == "fixed" else probabilities(tries)
    for pair in cases(4, 5):
        p, q = pair.p[0], pair.q[0]
        forced = max(
            float(best(Pairs(pair.p[:, order], pair.q[:, order]), chances).epsilon(DELTA)[0])
            for order in map(list, permutations(range(p.size)))
        )
        assert forced <= REFERENCE["epsilon_bound"](p, q, slope, DELTA, cells=CELLS) + 1e-9
        assert REFERENCE["epsilon_attack"](p, q, slope, DELTA) <= forced + 1e-6


@pytest.mark.parametrize(("rate", "noise"), [(1.0, 1.0), (0.1, 0.8)])
def test_masses_of_intervals_cost_what_the_mechanism_costs(rate: float, noise: float) -> None:
    """A partition costs no more than the mechanism, and a fine one nearly as much."""
    run = gaussian(noise_multiplier=noise) if rate == 1 else poisson_gaussian(sample_rate=rate, noise_multiplier=noise)
    slope, tries = LAWS["geometric"]
    price = Pld().epsilon(best_of_tries(run, tries), DELTA, Adjacency.ADD_OR_REMOVE_ONE)
    masses = on_intervals(2000, rate=rate, noise=noise)
    assert REFERENCE["epsilon_bound"](*masses, slope, DELTA, cells=100_000) == pytest.approx(price, rel=2e-3)
    assert REFERENCE["epsilon_attack"](*on_intervals(400, rate=rate, noise=noise), slope, DELTA) <= price


@pytest.mark.parametrize("law", LAWS)
def test_a_leak_is_charged(law: str) -> None:
    """Ours has no finer tangents where a leak takes them far out; both are upper bounds."""
    (p, q), (slope, tries) = randomized_response(0.5, leak=1e-8), LAWS[law]
    bound = REFERENCE["epsilon_bound"](p, q, slope, DELTA, cells=CELLS)
    ours = drawn(p, q, tries)
    assert REFERENCE["epsilon_attack"](p, q, slope, DELTA) <= bound <= ours * 1.02 < 1.1 * bound


def test_what_leaks_more_than_delta_has_no_bound() -> None:
    p, q = randomized_response(0.5, leak=1e-5)
    assert REFERENCE["epsilon_bound"](p, q, REFERENCE["fixed"](2), DELTA, cells=CELLS) == math.inf
    assert REFERENCE["epsilon_attack"](p, q, REFERENCE["fixed"](2), DELTA) == math.inf


def test_one_try_costs_itself() -> None:
    p, q = MECHANISMS["Gaussian"]
    alone = Exact(Pairs(p[None], q[None])).epsilon(DELTA)
    assert REFERENCE["epsilon_bound"](p, q, lambda u: np.ones_like(u), DELTA, cells=CELLS) == pytest.approx(alone)
    assert REFERENCE["epsilon_attack"](p, q, lambda u: np.ones_like(u), DELTA) == pytest.approx(alone)


def test_the_file_is_alone_and_short() -> None:
    assert imports(FILE) == {"numpy"}
    assert len(FILE.read_text().partition('"""\n\nimport')[2].splitlines()) <= LONGEST
