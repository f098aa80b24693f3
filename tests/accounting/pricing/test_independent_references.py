"""Steps until the budget is spent, and cards on sealed parts: what is solved for, against references of their own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    black_box,
    compose,
    gaussian,
    noisy_table,
    poisson_gaussian,
    repeat,
    without_replacement_gaussian,
)
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.pricing.search_price import CardTerms, PricedSearch, search_priced_with_card
from dpsweep.accounting.pricing.search_terms import SearchTerms
from dpsweep.accounting.pricing.solver import runs_with_solved_steps
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.selection.rules import Composition
from tests.accounting.reference_losses import (
    Added,
    FixedSize,
    Parts,
    Removed,
    draws,
    epsilons_between,
    gaussian_epsilon,
    needs_long_doubles,
)

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
PANEL = Panel(claimants=(Pld(), Rdp()))
RECORDS = 10**7

# Until the budget is spent


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """A declared run whose number of steps is open; `falls` is by how much its clip norm has fallen at its end."""

    noise_multiplier: float
    rate: float = 1.0
    fixed: bool = False
    falls: float = 1.0
    steps: int = 1
    is_score_noise_open: bool = False
    final: None = None

    @property
    def training_event_key(self) -> Hashable:
        return self.rate, self.fixed, self.falls

    def noises(self, steps: int) -> list[float]:
        """The noise of each step over its clip norm, which falls in eight stages."""
        stages = [step * 8 // steps / 8 for step in range(steps)] if self.falls < 1 else [0.0] * steps
        return [self.noise_multiplier * (1 + (1 / self.falls - 1) * stage) for stage in stages]

    def training_event(self, noise_multiplier: float, steps: int | None = None) -> DpEvent:
        run = replace(self, noise_multiplier=noise_multiplier)
        size = round(self.rate * RECORDS)
        return compose(
            repeat(
                without_replacement_gaussian(records=RECORDS, batch_size=size, noise_multiplier=noise)
                if self.fixed
                else poisson_gaussian(sample_rate=self.rate, noise_multiplier=noise),
                len(list(alike)),
            )
            for noise, alike in itertools.groupby(run.noises(self.steps if steps is None else steps))
        )

    def with_steps(self, steps: int) -> OpenRun:
        return replace(self, steps=steps)

    def trial_at_noise(self, noise_multiplier: float, score_noise: float | None) -> Trial:
        raise NotImplementedError

    def parts(self, law: Callable[[float, float], object], steps: int) -> Parts:
        """The steps as the reference takes them."""
        grouped = itertools.groupby(self.noises(steps))
        return [(law(self.rate, noise), len(list(alike))) for noise, alike in grouped]  # type: ignore[misc]


def steps_of(runs: Sequence[OpenRun], epsilon: float, delta: float, adjacency: Adjacency = ADD) -> list[int]:
    terms = SearchTerms(rule=Composition(), panel=PANEL, delta=delta, adjacency=adjacency)
    solved = runs_with_solved_steps(runs, terms, epsilon)
    return [run.steps for run in solved]  # type: ignore[attr-defined]


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
@pytest.mark.parametrize(("noise", "epsilon"), [(0.3, 300.0), (5.0, 1.0), (50.0, 2.0), (50.0, 8.0)])
def test_the_budget_pays_for_the_steps_of_the_closed_form(
    noise: float, epsilon: float, delta: float, adjacency: Adjacency
) -> None:
    """Without sampling T steps are one Gaussian of sensitivity sqrt(T): the last T whose epsilon is in the budget."""
    sensitivity = (2 if adjacency is REPLACE else 1) / noise

    def cost(steps: int) -> float:
        return gaussian_epsilon(sensitivity * math.sqrt(steps), delta)

    if cost(1) > epsilon:
        with pytest.raises(BadInput, match="Not one step fits"):
            steps_of([OpenRun(noise_multiplier=noise)], epsilon, delta, adjacency)
        return
    (steps,) = steps_of([OpenRun(noise_multiplier=noise)], epsilon, delta, adjacency)
    assert cost(steps) <= epsilon * (1 + 1e-12)
    assert cost(steps + 1) > epsilon * (1 - 1e-12)


OPEN = [
    (OpenRun(noise_multiplier=1.2, rate=0.05), 2.0, 1e-5),
    (OpenRun(noise_multiplier=2.0, rate=1e-3), 0.3, 1e-9),
    (OpenRun(noise_multiplier=1.5, rate=0.02, falls=0.5), 1.0, 1e-5),
    (OpenRun(noise_multiplier=4.0, rate=0.01, fixed=True), 1.0, 1e-6),
    pytest.param(OpenRun(noise_multiplier=3.0, rate=0.05, fixed=True, falls=0.5), 3.0, 1e-7, marks=pytest.mark.long),
]


def open_draws(n: int, seed: int) -> list[object]:
    """Runs over all settings; the budget is what about a drawn number of steps cost, by the bracket."""
    rng = np.random.Generator(np.random.Philox(seed))
    return [
        pytest.param(
            (
                OpenRun(
                    noise_multiplier=case.noise,
                    rate=max(1, round(case.rate * RECORDS)) / RECORDS,
                    fixed=bool(rng.random() < 0.5),
                    falls=float(rng.choice([0.5, 1.0])) if case.rate > 1e-3 else 1.0,
                ),
                case.steps,
                case.delta,
            ),
            marks=pytest.mark.long,
            id=str(place),
        )
        for place, case in enumerate(draws(n, seed))
    ]


@needs_long_doubles
@pytest.mark.parametrize("case", open_draws(12, 71), ids=str)
def test_budgets_of_all_sizes_are_spent_and_not_overspent(case: tuple[OpenRun, int, float]) -> None:
    run, steps, delta = case
    law = FixedSize if run.fixed else Removed
    epsilon = epsilons_between(run.parts(law, steps), delta, 2**14)[1]
    if epsilon < 1e-4 or epsilon > 500:
        pytest.skip("a budget of this size is spent by no step, or by steps without a price")
    assert_budget_is_spent(run, epsilon, delta)


@needs_long_doubles
@pytest.mark.parametrize(("run", "epsilon", "delta"), OPEN)
def test_the_budget_is_spent_and_not_overspent(run: OpenRun, epsilon: float, delta: float) -> None:
    assert_budget_is_spent(run, epsilon, delta)


def assert_budget_is_spent(run: OpenRun, epsilon: float, delta: float) -> None:
    """After the solved steps the floor is within the budget; after 2 % more steps the ceiling is beyond it."""
    adjacency, laws = (REPLACE, [FixedSize]) if run.fixed else (ADD, [Removed, Added])
    try:
        (steps,) = steps_of([run], epsilon, delta, adjacency)
    except BadInput:
        assert max(epsilons_between(run.parts(law, 1), delta, 2**14)[1] for law in laws) > epsilon
        return
    assert max(epsilons_between(run.parts(law, steps), delta, 2**14)[0] for law in laws) <= epsilon
    if steps < 25_000:
        more = math.ceil(1.02 * steps) + 1
        assert max(epsilons_between(run.parts(law, more), delta, 2**14)[1] for law in laws) > epsilon


@needs_long_doubles
def test_several_runs_spend_one_budget_together() -> None:
    runs = [OpenRun(noise_multiplier=1.2, rate=0.05), OpenRun(noise_multiplier=4.0, rate=0.1)]
    counts = steps_of(runs, 3.0, 1e-6)
    parts = [part for run, steps in zip(runs, counts, strict=True) for part in run.parts(Removed, steps)]
    assert epsilons_between(parts, 1e-6, 2**14)[0] <= 3.0
    more = [part for run, steps in zip(runs, counts, strict=True) for part in run.parts(Removed, steps * 51 // 50 + 1)]
    assert epsilons_between(more, 1e-6, 2**14)[1] > 3.0
    alone = [
        epsilons_between(run.parts(Removed, steps), 1e-6, 2**14)[1] for run, steps in zip(runs, counts, strict=True)
    ]
    assert alone[0] == pytest.approx(alone[1], rel=0.05), "each alone costs as much as the other"


# Cards on sealed parts


def searched(event: PlanEvent, delta: float, adjacency: Adjacency) -> PricedSearch:
    quote = PANEL.quote(event, delta, adjacency)
    return PricedSearch(
        rule_config={},
        rule=Composition(),
        offers=dict,
        trials=(),
        event=event,
        quote=quote,
        single_run=quote,
        target_epsilon=None,
        notes=(),
    )


CARDS = [
    (noise, steps, delta, adjacency)
    for noise, steps, delta in [
        (0.3, 1, 1e-12),
        (5.0, 4, 1e-5),
        (50.0, 20_000, 1e-2),
        (50.0, 1, 1e-7),
        (9.0, 900, 1e-10),
    ]
    for adjacency in (ADD, REPLACE)
]


@pytest.mark.parametrize(("noise", "steps", "delta", "adjacency"), CARDS)
def test_a_card_costs_nothing_and_has_the_least_noise_for_that(
    noise: float, steps: int, delta: float, adjacency: Adjacency
) -> None:
    """The whole costs as much as the search; the card alone as much, to .3 % of its noise."""
    search = PlanEvent(training=repeat(gaussian(noise_multiplier=noise), steps))
    budget = Guarantee(epsilon=1e6, delta=delta, adjacency=adjacency)
    terms = CardTerms(exact=False, threshold=None)
    priced = search_priced_with_card(searched(search, delta, adjacency), terms, panel=PANEL, delta=delta, budget=budget)
    card = priced.card
    assert card is not None
    sensitivity = 1.0 if adjacency is ADD else math.sqrt(2)
    alone = gaussian_epsilon(sensitivity / card.noise_std, delta)
    twice = 2 if adjacency is REPLACE else 1
    exact = gaussian_epsilon(twice * math.sqrt(steps) / noise, delta)
    assert priced.event.events_by_population.keys() == {"training", "sealed"}
    assert priced.quote.epsilon == pytest.approx(max(exact, alone), rel=1e-9)
    assert alone <= priced.quote.epsilon * (1 + 1e-12)
    assert priced.quote.epsilon == pytest.approx(exact, rel=1e-9)
    less = card.noise_std * (1 - 3e-3)
    assert card.noise_std == 0.01 or gaussian_epsilon(sensitivity / less, delta) > exact


def test_a_table_of_counts_by_integration() -> None:
    """Two counts that a replaced unit moves in opposite ways: the integral over the plane of their noisy values."""
    std, delta = 1.5, 1e-4
    price = PANEL.epsilon(PlanEvent(training=noisy_table(noise_std=std, adjacency=REPLACE)), delta, REPLACE)
    axis = np.linspace(-9 * std, 9 * std + 1, 901)
    x, y = np.meshgrid(axis, axis)

    def density(right: float, wrong: float) -> np.ndarray:
        exponents = -((x - right) ** 2 + (y - wrong) ** 2) / (2 * std**2)
        return np.asarray(np.exp(exponents) * (axis[1] - axis[0]) ** 2 / (2 * math.pi * std**2))

    def exact(one: tuple[float, float], other: tuple[float, float]) -> float:
        return float(np.maximum(density(*one) - math.exp(price) * density(*other), 0).sum())

    assert exact((1.0, 0.0), (0.0, 1.0)) == pytest.approx(delta, rel=2e-3)
    rng = np.random.Generator(np.random.Philox(72))
    for one, other in np.abs(rng.normal(size=(12, 2, 2))):
        assert exact(tuple(one / np.linalg.norm(one)), tuple(other / np.linalg.norm(other))) <= delta * (1 + 2e-3)


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 60))])
def test_each_population_of_a_plan_pays_for_itself_alone(seed: int) -> None:
    """Bits of a search, of its scores, of a final run, of its score and of the card, whose laws depend on all earlier.

    A unit is in one population, so that one bit alone depends on it, in any direction that the earlier bits name. The
    exact divergence of all bits together is at most delta at the quoted epsilon, which is the larger of all.
    """
    rng = np.random.Generator(np.random.Philox(800 + seed))
    epsilons = [float(one) for one in 10 ** rng.uniform(-1, 0.6, 5)]
    parts = [black_box(epsilon=one, delta=0.0, adjacency=ADD) for one in epsilons]
    plan = PlanEvent(
        training=parts[0],
        validation=parts[1],
        final=PlanEvent(training=parts[2], validation=parts[3]),
        sealed=parts[4],
    )
    price, delta = PANEL.epsilon(plan, 1e-6, ADD), 1e-6
    assert price <= max(epsilons) * (1 + 1e-9)

    def law(population: int | None) -> np.ndarray:
        """The law of all five bits, where the unit of this population is another one; shape [32]."""
        whole = np.ones(1)
        for place, epsilon in enumerate(epsilons):
            ways = np.random.Generator(np.random.Philox(900 + 10 * seed + place)).choice([-1, 1], len(whole))
            ways = ways * (-1 if place == population else 1)
            ones = 1 / (1 + np.exp(-ways * epsilon))
            whole = (whole[:, None] * np.stack([1 - ones, ones], axis=1)).ravel()
        return whole

    def divergence(population: int, epsilon: float) -> float:
        pairs = [(law(None), law(population)), (law(population), law(None))]
        return max(float(np.maximum(one - math.exp(epsilon) * other, 0).sum()) for one, other in pairs)

    rounding = 1e-14  # of differences of sums near 1, in float64
    assert max(divergence(place, price) for place in range(5)) <= delta + rounding
    assert max(divergence(place, 0.99 * price) for place in range(5)) > delta
