"""Final runs, searches on a part and searches beside a final run: prices against exact laws of whole searches.

Two kinds of searches have a law that can be written down:

* Randomised response: each run answers a bit, and the winner, its bit and the final run's bit are few outcomes. All
  are summed, for many orders of the scores, and for final runs whose direction depends on the winner.
* Gaussian steps: the best of K tries has the density f'(F) times that of a try, where F is the law of its score and f
  the generating function of K; the final run is a Gaussian mechanism. Here the score is the privacy loss, up or down,
  and a run of many steps is the floor of a bracket, so each of these is an attack: no price may be below it.

The law of K is written down here once more; nothing of the product but its events and its prices is called.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    black_box,
    gaussian,
    no_access,
    poisson_gaussian,
    repeat,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.rules import (
    BestOfGrid,
    Composition,
    DisjointParts,
    Final,
    PoissonSelection,
    PrivateSelection,
    Subsampled,
    TrainOn,
)
from tests.accounting.reference_losses import (
    Added,
    Draw,
    Removed,
    bracket,
    draws,
    epsilons_between,
    gaussian_delta,
    gaussian_epsilon,
    needs_long_doubles,
)

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
PANEL = Panel(claimants=(Pld(), Rdp()))
SLACK = 1e-12


def epsilons_of_event(event: DpEvent, delta: float) -> list[float]:
    """The upper bounds of the accountants that have one."""
    found = []
    for accountant in (Pld(), Rdp()):
        try:
            found.append(accountant.epsilon(event, delta, ADD))
        except UnsupportedEvent:
            continue
    assert found
    return found


# Randomised response, all outcomes summed


@dataclass(frozen=True)
class Points:
    """Points of randomised response: epsilons of their runs in the search, and of their final runs."""

    search: tuple[float, ...]
    final: tuple[float, ...]

    @property
    def events(self) -> list[PlanEvent]:
        return [
            PlanEvent(training=response(one), final=PlanEvent(training=response(other)))
            for one, other in zip(self.search, self.final, strict=True)
        ]


def response(epsilon: float) -> DpEvent:
    return black_box(epsilon=epsilon, delta=0.0, adjacency=ADD)


def bits(epsilon: float, sign: int) -> np.ndarray:
    """The law of a bit that tells one neighbour from the other."""
    one = 1 / (1 + math.exp(-sign * epsilon))
    return np.array([1 - one, one])


GeneratingFunction = Callable[[np.ndarray], np.ndarray]


def negative_binomial(eta: float, gamma: float) -> GeneratingFunction:
    """sum over k >= 1 of x^k times (1 - gamma)^k prod_{l < k} (l + eta) / (l + 1), normalised."""
    if eta == 0:
        return lambda x: np.log1p(-(1 - gamma) * x) / math.log(gamma)
    return lambda x: ((1 - (1 - gamma) * x) ** -eta - 1) / (gamma**-eta - 1)


def poisson(mean: float) -> GeneratingFunction:
    return lambda x: np.exp(mean * (x - 1))


HIDDEN: list[tuple[SelectionRule, GeneratingFunction]] = [
    (PrivateSelection(eta=1.0, gamma=0.2), negative_binomial(1.0, 0.2)),
    (PrivateSelection(eta=0.0, gamma=0.1), negative_binomial(0.0, 0.1)),
    (PrivateSelection(eta=2.0, gamma=0.5), negative_binomial(2.0, 0.5)),
    (PoissonSelection(mean=3.0), poisson(3.0)),
]


def winner_law(points: Points, sign: int, order: Sequence[int], law: GeneratingFunction) -> np.ndarray:
    """The law of the winner: a point and its bit, at 2 point + bit, and last that there is none."""
    one_try = np.concatenate([bits(epsilon, sign) / len(points.search) for epsilon in points.search])
    below = np.zeros(len(one_try))
    below[list(order)] = np.cumsum(one_try[list(order)]) - one_try[list(order)]
    none = float(law(np.zeros(1))[0])
    return np.append(law(np.minimum(1.0, below + one_try)) - law(below), none)


def final_law(points: Points, sign: int, direction: Sequence[int]) -> np.ndarray:
    """The law of the final run's bit for each winner, shape [outcomes, 2]; of no winner nothing runs."""
    runs = [bits(points.final[place // 2], sign * way) for place, way in enumerate(direction)]
    return np.array([*runs, [1.0, 0.0]])


def divergence(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    """The larger hockey-stick divergence of both directions."""
    weight = math.exp(epsilon)
    return max(float(np.maximum(a - weight * b, 0).sum()) for a, b in ((one, other), (other, one)))


def random_points(rng: np.random.Generator, count: int) -> Points:
    search, final = (tuple(float(one) for one in 10 ** rng.uniform(-1.5, 0.4, count)) for _ in range(2))
    return Points(search, final)


def ways(rng: np.random.Generator, outcomes: int, most: int) -> list[tuple[list[int], list[int]]]:
    """Orders of the scores and directions of final runs: some at random, and those that look worst."""
    rising = [2 * point + bit for bit in (0, 1) for point in range(outcomes // 2)]
    chosen = [(rising, [2 * (place % 2) - 1 for place in range(outcomes)]), (rising[::-1], [1] * outcomes)]
    return chosen + [
        (rng.permutation(outcomes).tolist(), rng.choice([-1, 1], outcomes).tolist()) for _ in range(most - 2)
    ]


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))]
RESPONSE_DELTAS = (1e-12, 1e-6, 1e-2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "hidden",
    [HIDDEN[0], *(pytest.param(one, marks=pytest.mark.long) for one in HIDDEN[1:3]), HIDDEN[3]],
    ids=lambda pair: repr(pair[0]),
)
def test_a_hidden_search_and_its_final_run_on_responses(
    hidden: tuple[SelectionRule, GeneratingFunction], seed: int
) -> None:
    """The winner, its bit, and the bit of a final run whose direction depends on both."""
    rule, law = hidden
    rng = np.random.Generator(np.random.Philox(100 + seed))
    points = random_points(rng, 3)
    event = Final(rule=rule).event(points.events).training
    searches = [
        [winner_law(points, sign, order, law)[:, None] * final_law(points, sign, way) for sign in (1, -1)]
        for order, way in ways(rng, 6, 60)
    ]
    for delta in RESPONSE_DELTAS:
        for price in epsilons_of_event(event, delta):
            assert max(divergence(*pair, price) for pair in searches) <= delta + SLACK


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "rate", [0.1, *(pytest.param(rate, marks=pytest.mark.long) for rate in (1e-5, 1e-3, 0.6, 0.99))]
)
@pytest.mark.parametrize("train_on", list(TrainOn))
@pytest.mark.parametrize("hidden", HIDDEN[::3], ids=lambda pair: repr(pair[0]))
def test_a_search_on_a_secret_part_and_its_final_run_on_responses(
    hidden: tuple[SelectionRule, GeneratingFunction], train_on: TrainOn, rate: float, seed: int
) -> None:
    """The record joins the part by a coin: the search reads it then, and the final run on the rest if it does not."""
    rule, law = hidden
    rng = np.random.Generator(np.random.Philox(200 + seed))
    points = random_points(rng, 3)
    event = Subsampled(rate=rate, rule=rule, train_on=train_on).event(points.events).training
    searches = []
    for order, way in ways(rng, 6, 40):
        here, gone = (winner_law(points, sign, order, law)[:, None] for sign in (1, -1))
        run_here, run_gone = (final_law(points, sign, way) for sign in (1, -1))
        in_part = here * (run_gone if train_on is TrainOn.REST else run_here)
        searches.append((rate * in_part + (1 - rate) * gone * run_here, gone * run_gone))
    for delta in RESPONSE_DELTAS:
        for price in epsilons_of_event(event, delta):
            assert max(divergence(*pair, price) for pair in searches) <= delta + SLACK


def joint_bits(epsilons: Sequence[float], sign: int) -> np.ndarray:
    """The law of one bit of each run, shape [2, 2, ...]."""
    law = np.ones(())
    for epsilon in epsilons:
        law = law[..., None] * bits(epsilon, sign)
    return law


@pytest.mark.parametrize("seed", SEEDS)
def test_disjoint_parts_of_responses(seed: int) -> None:
    """All bits of the search are shown, any function of them names the winner, and one of the parts has the record."""
    rng = np.random.Generator(np.random.Philox(300 + seed))
    points = random_points(rng, 4)
    event = DisjointParts().event(points.events)
    shapes = list(itertools.product((0, 1), repeat=4))
    for _ in range(20):
        winners, way = rng.integers(0, 4, len(shapes)), rng.choice([-1, 1], len(shapes))

        def whole(search: int, final: int, winners: np.ndarray = winners, way: np.ndarray = way) -> np.ndarray:
            first = joint_bits(points.search, search).ravel()
            run = np.array([bits(points.final[one], final * turn) for one, turn in zip(winners, way, strict=True)])
            return first[:, None] * run

        for delta in RESPONSE_DELTAS:
            price = PANEL.epsilon(event, delta, ADD)
            assert divergence(whole(1, 1), whole(-1, 1), price) <= delta + SLACK, "a record of the search"
            assert divergence(whole(1, 1), whole(1, -1), price) <= delta + SLACK, "a record of the final run"


@pytest.mark.parametrize("seed", SEEDS)
def test_disjoint_parts_cost_no_more_than_the_larger_part(seed: int) -> None:
    """The exact epsilon of all bits of the search, or that of the dearest final run: within a thousandth."""
    rng = np.random.Generator(np.random.Philox(400 + seed))
    points = random_points(rng, 4)
    price = PANEL.epsilon(DisjointParts().event(points.events), 1e-3, ADD)
    search = [joint_bits(points.search, sign).ravel() for sign in (1, -1)]
    runs = [[bits(epsilon, sign) for sign in (1, -1)] for epsilon in points.final]
    below = price * (1 - 1e-3) - 1e-6
    assert max(divergence(*search, below), *(divergence(*run, below) for run in runs)) >= 1e-3 * (1 - 1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_that_shows_all_and_its_final_run_on_the_same_responses(seed: int) -> None:
    """All bits, and the final run of a winner that any function of them names."""
    rng = np.random.Generator(np.random.Philox(500 + seed))
    points = random_points(rng, 4)
    event = Final(rule=Composition()).event(points.events).training
    for delta in RESPONSE_DELTAS:
        prices = epsilons_of_event(event, delta)
        for _ in range(20):
            winners, way = rng.integers(0, 4, 16), rng.choice([-1, 1], 16)
            whole = [
                joint_bits(points.search, sign).ravel()[:, None]
                * np.array([bits(points.final[one], sign * turn) for one, turn in zip(winners, way, strict=True)])
                for sign in (1, -1)
            ]
            assert divergence(*whole, min(prices)) <= delta + SLACK


# Gaussian steps: closed forms, and searches whose score is the privacy loss


def gaussian_points(noises: Sequence[float], finals: Sequence[float]) -> list[PlanEvent]:
    return [
        PlanEvent(training=gaussian(noise_multiplier=one), final=PlanEvent(training=gaussian(noise_multiplier=other)))
        for one, other in zip(noises, finals, strict=True)
    ]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 60))])
@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_final_runs_and_disjoint_parts_of_gaussian_runs_are_closed_forms(adjacency: Adjacency, seed: int) -> None:
    """1 / noise^2 adds up over a search; the final run has the least noise of all; parts cost the larger of both."""
    rng = np.random.Generator(np.random.Philox(600 + seed))
    noises, finals = (np.exp(rng.uniform(*np.log([0.3, 50.0]), 5)) for _ in range(2))
    delta = float(10 ** rng.uniform(-12, -2))
    twice = 2 if adjacency is REPLACE else 1
    search, last = twice * math.sqrt(float((noises**-2).sum())), twice / float(finals.min())
    points = gaussian_points(noises.tolist(), finals.tolist())
    same = PANEL.epsilon(Final(rule=Composition()).event(points), delta, adjacency)
    apart = PANEL.epsilon(DisjointParts().event(points), delta, adjacency)
    exact = gaussian_epsilon(math.hypot(search, last), delta)
    assert exact * (1 - 1e-12) <= same <= 1.005 * exact
    assert apart == pytest.approx(max(gaussian_epsilon(search, delta), gaussian_epsilon(last, delta)), rel=1e-9)


@dataclass(frozen=True)
class OneTry:
    """The laws of one try on two neighbours, outcomes in ascending order of the loss, shape [n] each.

    What a law lacks to 1 is left out.
    """

    p: np.ndarray
    q: np.ndarray


def try_of_steps(law: type, case: Draw, points: int) -> OneTry:
    """A run of steps, as little private as the floor of its bracket."""
    floor = bracket([(law(case.rate, case.noise), case.steps)], case.delta, points).floor
    kept = floor.masses > 1e-300
    p, losses = floor.masses[kept], floor.losses[kept]
    q = p * np.exp(-losses)
    return OneTry(p / max(1.0, p.sum()), q / max(1.0, q.sum()))


def best_of(one: OneTry, law: GeneratingFunction, *, rising: bool) -> tuple[np.ndarray, np.ndarray]:
    """The laws of the best try, whose score rises or falls with the loss; what is left out scores worst."""
    places = slice(None) if rising else slice(None, None, -1)
    found = []
    for masses in (one.p, one.q):
        left_out = max(0.0, 1.0 - float(masses.sum()))
        above = left_out + np.cumsum(masses[places])
        below = np.append(left_out, above[:-1])
        found.append((law(np.minimum(1.0, above)) - law(np.minimum(1.0, below)))[places])
    return found[0], found[1]


ROUNDING = 1e-15
"""More than the errors of a mass: an attack that leaves out cells of less is weaker, and is an attack all the same."""


def delta_with_final_run(
    winners: tuple[np.ndarray, np.ndarray], rate: float, mu: float, train_on: TrainOn, epsilon: float
) -> float:
    """The hockey-stick of a search on a part that has the record with probability `rate`, and a Gaussian final run.

    Given the winner, both directions are those of the final run at another epsilon.
    """
    here, gone = winners
    kept = (gone > ROUNDING) & (here > ROUNDING)
    ratio, gone = here[kept] / gone[kept], gone[kept]
    weight = math.exp(epsilon)
    with np.errstate(divide="ignore", invalid="ignore"):
        if train_on is TrainOn.ALL:
            mean = 1 - rate + rate * ratio
            at = epsilon - np.log(mean)
            ahead = mean * gaussian_delta(mu, at)
            behind = gaussian_delta(mu, epsilon + np.log(mean))
        else:
            left = weight - rate * ratio
            ahead = np.where(
                left > 0, (1 - rate) * gaussian_delta(mu, np.log(left / (1 - rate))), 1 - rate + rate * ratio - weight
            )
            rest = 1 - weight * rate * ratio
            behind = np.where(rest > 0, rest * gaussian_delta(mu, np.log(weight * (1 - rate) / rest)), 0.0)
    return max(float(gone @ np.nan_to_num(one)) for one in (ahead, behind))


def runs_of_case(case: Draw) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=case.rate, noise_multiplier=case.noise), case.steps)


SEARCHES = [
    (Draw(1.0, 3.0, 1, 1e-5), 0.1, 2.0),
    (Draw(0.02, 2.0, 300, 1e-6), 0.3, 1.0),
    (Draw(1e-3, 1.0, 1000, 1e-8), 1e-3, 5.0),
]


def search_draws(n: int, seed: int) -> list[object]:
    rng = np.random.Generator(np.random.Philox(seed))
    return [
        pytest.param(
            (case, float(10 ** rng.uniform(-5, -0.05)), float(np.exp(rng.uniform(*np.log([0.3, 50.0]))))),
            marks=pytest.mark.long,
            id=str(place),
        )
        for place, case in enumerate(draws(n, seed))
    ]


@needs_long_doubles
@pytest.mark.parametrize("search", [*SEARCHES, *search_draws(60, 61)], ids=str)
@pytest.mark.parametrize("hidden", HIDDEN[::3], ids=lambda pair: repr(pair[0]))
def test_hidden_searches_of_steps_and_their_final_run_cost_no_less_than_an_attack(
    hidden: tuple[SelectionRule, GeneratingFunction], search: tuple[Draw, float, float]
) -> None:
    """On all records, and on a secret part: the score is the loss, and the final run a Gaussian mechanism."""
    (rule, law), (case, rate, final) = hidden, search
    point = PlanEvent(training=runs_of_case(case), final=PlanEvent(training=gaussian(noise_multiplier=final)))
    events = [
        (Final(rule=rule).event([point]).training, 1.0, TrainOn.ALL),
        *((Subsampled(rate=rate, rule=rule, train_on=on).event([point]).training, rate, on) for on in TrainOn),
    ]
    tries = [try_of_steps(kind, case, 2**12) for kind in (Removed, Added)]
    winners = [best_of(tries[0], law, rising=rising) for rising in (True, False)]
    winners += [best_of(tries[1], law, rising=rising)[::-1] for rising in (True, False)]
    for event, share, train_on in events:
        for price in epsilons_of_event(event, case.delta):
            if price > 700.0:  # its exponential is beyond the range of float64
                continue
            found = max(delta_with_final_run(pair, share, 1 / final, train_on, price) for pair in winners)
            assert found <= case.delta * (1 + 1e-3) + 1e-13


@needs_long_doubles
@pytest.mark.parametrize("hidden", HIDDEN[::3], ids=lambda pair: repr(pair[0]))
def test_the_attack_is_near_the_price(hidden: tuple[SelectionRule, GeneratingFunction]) -> None:
    """At .85 of the price of a search and its final run its delta is above the one that is claimed."""
    (rule, law), (case, rate, final) = hidden, SEARCHES[0]
    point = PlanEvent(training=runs_of_case(case), final=PlanEvent(training=gaussian(noise_multiplier=final)))
    winners = best_of(try_of_steps(Removed, case, 2**12), law, rising=True)
    for event, share in (
        (Final(rule=rule).event([point]), 1.0),
        (Subsampled(rate=rate, rule=rule, train_on=TrainOn.ALL).event([point]), rate),
    ):
        price = PANEL.epsilon(event, case.delta, ADD)
        assert delta_with_final_run(winners, share, 1 / final, TrainOn.ALL, 0.85 * price) > case.delta
        alone = PANEL.epsilon(rule.event([replace(point, final=None)]), case.delta, ADD)
        assert delta_with_final_run(winners, 1.0, 1 / final, TrainOn.ALL, alone) > case.delta, "without the final run"


SINGLE = [
    (Draw(0.05, 1.0, 50, 1e-5), 0.2),
    (Draw(1e-3, 0.8, 2000, 1e-9), 1e-2),
    (Draw(0.3, 10.0, 300, 1e-3), 0.9),
]


@needs_long_doubles
@pytest.mark.parametrize(
    "search", [*SINGLE, *(pytest.param(each.values[0][:2], marks=each.marks) for each in search_draws(60, 62))], ids=str
)
def test_a_single_run_on_a_secret_part_is_the_amplified_bracket(search: tuple[Draw, float]) -> None:
    """rate times the delta of a run at ln(1 + (exp(epsilon) - 1) / rate): Balle, Barthe, Gaboardi 2018, Theorem 8."""
    case, rate = search
    point = PlanEvent(training=runs_of_case(case), final=PlanEvent(training=no_access()))
    event = Subsampled(rate=rate, rule=PrivateSelection(gamma=1.0)).event([point]).training
    least, most = (
        math.log1p(rate * math.expm1(one)) if one < 500 else one + math.log(rate)
        for one in (
            epsilons_between([(Removed(case.rate, case.noise), case.steps)], min(0.9, case.delta / rate), 2**14)
            if case.delta < rate
            else (0.0, 0.0)
        )
    )
    prices = epsilons_of_event(event, case.delta)
    assert min(prices) >= least * (1 - 1e-9)
    assert min(prices) <= 1.05 * most + 1e-5


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_of_a_grid_and_its_final_run_on_responses(seed: int) -> None:
    """Each point runs once, and the winner alone is shown: a bit of one of them, then the bit of its final run."""
    rng = np.random.Generator(np.random.Philox(700 + seed))
    points = random_points(rng, 3)
    event = Final(rule=BestOfGrid()).event(points.events).training
    outcomes = list(itertools.product((0, 1), repeat=3))
    for order, way in ways(rng, 6, 60):
        rank = {one: place for place, one in enumerate(order)}
        won = [max((2 * point + bit for point, bit in enumerate(shape)), key=rank.__getitem__) for shape in outcomes]
        pair = []
        for sign in (1, -1):
            law = np.bincount(won, joint_bits(points.search, sign).ravel(), 6)
            pair.append(law[:, None] * final_law(points, sign, way)[:6])
        for delta in RESPONSE_DELTAS:
            assert divergence(*pair, min(epsilons_of_event(event, delta))) <= delta + SLACK
