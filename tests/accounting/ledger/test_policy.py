"""How charges add up, held against the theorems: exact sums, exact Gaussian mechanisms, and adversaries that adapt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsweep.accounting.accountants.rdp import ORDERS, Rdp
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import (
    PlanEvent,
    best_of_tries,
    black_box,
    compose,
    gaussian,
    poisson_gaussian,
    random_stopping,
    repeat,
)
from dpsweep.accounting.events.trial_counts import NegativeBinomial
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.ledger.book import (
    DELTA,
    DIVERGENCE,
    EPSILON,
    Addition,
    Balance,
    Charged,
    Opened,
    Policy,
    policy_from_config,
)
from dpsweep.accounting.ledger.renyi_filter import RenyiFilter
from dpsweep.accounting.ledger.statement import guaranteed, sharing_sentence
from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
BUDGET = Guarantee(epsilon=10.0, delta=1e-4)
ONE = Guarantee(epsilon=1.0, delta=1e-5)
FILTER = RenyiFilter(order=8.0, epsilon=6.0, delta=5e-5)
FILTERS = [
    FILTER,
    RenyiFilter(order=2.5, epsilon=8.0, delta=9e-5),
    RenyiFilter(order=32, epsilon=1.0, delta=1e-6),
    RenyiFilter(order=1.5, epsilon=9.9, delta=0.02),
]


def opened(policy: Policy, budget: Guarantee = BUDGET) -> Balance:
    return Balance.opened(Opened(budget=budget, policy=policy))


def charged(balance: Balance, cost: Guarantee, event: PlanEvent | None = None) -> Balance:
    return taken(balance, balance.policy.amounts_of_charge(cost, event))


def taken(balance: Balance, takes: Mapping[str, float]) -> Balance:
    return balance.after(Charged(epsilon=0.0, delta=0.0, takes=takes, trials=()))


def run(noise: float) -> PlanEvent:
    return PlanEvent(training=gaussian(noise_multiplier=noise))


@given(st.lists(st.tuples(st.floats(0, 1e300), st.floats(0, 0.99)), max_size=20))
def test_sums_are_exact_for_every_size(costs: list[tuple[float, float]]) -> None:
    balance = opened(Addition())
    for epsilon, delta in costs:
        balance = charged(balance, Guarantee(epsilon=epsilon, delta=delta))
    for place, name in enumerate((EPSILON, DELTA)):
        exact = sum((Fraction(repr(cost[place])) for cost in costs), Fraction(0))
        assert Fraction(balance.reserved.get(name, 0)) == exact
        assert Fraction(repr(guaranteed(balance.policy, balance.reserved)[place])) >= exact


def test_a_charge_too_small_for_the_digits_of_a_float_still_counts() -> None:
    balance = charged(opened(Addition()), BUDGET)
    assert not balance.has_room({EPSILON: 1e-300, DELTA: 0.0})
    assert not balance.has_room({EPSILON: 0.0, DELTA: 5e-324})
    assert balance.has_room({EPSILON: 0.0, DELTA: 0.0})
    assert guaranteed(Addition(), charged(balance, Guarantee(epsilon=1e-300, delta=0.0)).reserved)[0] > 10


def test_what_is_no_finite_number_is_never_admitted() -> None:
    for policy, name in ((Addition(), EPSILON), (FILTER, DIVERGENCE)):
        assert not opened(policy).has_room({name: float("inf")})
        with pytest.raises(ValueError, match=f"{name}=nan"):
            opened(policy).has_room({name: float("nan")})


def room(policy: RenyiFilter, budget: Guarantee = BUDGET) -> float:
    """The divergence that a filter admits."""
    return float(policy.amount_limits(budget)[DIVERGENCE])


@pytest.mark.parametrize("policy", FILTERS)
def test_the_conversion_is_the_best_one_of_a_single_order(policy: RenyiFilter) -> None:
    """The largest (1 - exp(epsilon - loss))+ beside exp((order - 1) loss), by a grid; and another library's."""
    budget = Guarantee(epsilon=policy.epsilon, delta=policy.delta)
    losses = policy.epsilon + np.geomspace(1e-6, 60, 400_001)
    moments = (policy.order - 1) * (room(policy, budget) - losses)
    worst = float(np.max(-np.expm1(policy.epsilon - losses) * np.exp(moments)))
    assert worst == pytest.approx(policy.delta, rel=1e-6)
    theirs, _ = rdp_privacy_accountant.compute_epsilon([policy.order], [room(policy, budget)], policy.delta)
    assert theirs == pytest.approx(policy.epsilon, rel=1e-12)
    assert guaranteed(policy, policy.amount_limits(budget))[0] <= policy.epsilon * (1 + 1e-15)


def test_the_conversion_of_a_known_case() -> None:
    """Canonne, Kamath, Steinke 2020, Proposition 12: order 8, divergence 1, delta 1e-5."""
    policy = RenyiFilter(order=8.0, epsilon=6.0, delta=1e-5)
    assert guaranteed(policy, {DIVERGENCE: Addition().amount_limits(ONE)[EPSILON]}) == pytest.approx(
        (2.214109, 1e-5), abs=5e-7
    )


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(FILTERS), st.lists(st.floats(0.05, 200), min_size=1, max_size=8))
def test_what_a_filter_admits_is_within_its_part_of_the_budget(policy: RenyiFilter, noises: list[float]) -> None:
    """Gaussian mechanisms of any sizes, as many as are admitted, by their exact joint profile."""
    budget = Guarantee(epsilon=policy.epsilon, delta=policy.delta)
    balance, admitted = opened(policy, budget), 0.0
    for noise in noises:
        takes = policy.amounts_of_charge(ONE, run(noise))
        assert takes == {DIVERGENCE: pytest.approx(policy.order / (2 * noise**2), rel=1e-9)}
        times = 0
        while times < 50 and balance.has_room(takes):
            balance, times = taken(balance, takes), times + 1
        admitted += times * noise**-2
    if admitted:
        exact = GaussianProfile(mu=admitted**0.5).delta(np.array([policy.epsilon]))[0]
        assert exact <= policy.delta
        assert guaranteed(policy, balance.reserved)[0] <= policy.epsilon * (1 + 1e-12)


Choice = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Game:
    """Many adversaries at once, each with the privacy loss that it has seen and what its account still admits."""

    policy: RenyiFilter
    others: Guarantee
    rng: np.random.Generator
    size: int

    def losses(self, choose: Choice) -> np.ndarray:
        """The losses at the end, infinite where everything was given away.

        `choose` sees the loss, the divergence and the epsilon that are left, and says what share of either is spent.
        """
        loss = np.zeros(self.size)
        divergence = np.full(self.size, room(self.policy, Guarantee(epsilon=self.policy.epsilon, delta=0.5)))
        epsilon, delta = np.full(self.size, self.others.epsilon), np.full(self.size, self.others.delta)
        for _ in range(12):
            by_noise, by_claim = choose(loss, divergence, epsilon)
            spent = by_noise * divergence
            variance = 2 * spent / self.policy.order  # of the loss of a Gaussian mechanism: twice its mean
            loss = loss + self.rng.normal(variance / 2, np.sqrt(variance))
            divergence = divergence - spent
            claim, leak = by_claim * epsilon, by_claim * delta
            truth = self.rng.random(self.size) < 1 / (1 + np.exp(-claim))
            loss = loss + np.where(truth, claim, -claim)
            loss[self.rng.random(self.size) < leak] = np.inf
            epsilon, delta = epsilon - claim, delta - leak
        return loss


def _all_when_it_went_well(
    loss: np.ndarray, divergence: np.ndarray, epsilon: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Stops at a good loss, and puts all on one card at a bad one."""
    high = loss > 1.0
    return np.where(high, 0.05, 0.5), np.where(high, 1.0, 0.0)


def _chase(loss: np.ndarray, divergence: np.ndarray, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.where(loss < 0.5, 0.7, 0.1), np.where(loss > 1.5, 0.6, 0.1)


def _all_at_once(loss: np.ndarray, divergence: np.ndarray, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.ones_like(loss), np.ones_like(loss)


@pytest.mark.parametrize("choose", [_all_when_it_went_well, _chase, _all_at_once])
@pytest.mark.parametrize("order", [2.0, 4.0])
def test_no_adversary_that_adapts_gets_more_than_both_parts(choose: Choice, order: float) -> None:
    """Gaussian mechanisms and claims in turns, each chosen by what came out before; many games, 5 standard errors."""
    policy = RenyiFilter(order=order, epsilon=3.0, delta=0.05)
    others = Guarantee(epsilon=1.0, delta=0.01)
    losses = Game(policy, others, np.random.default_rng(7), 400_000).losses(choose)
    gained = -np.expm1(np.minimum(0.0, policy.epsilon + others.epsilon - losses))
    assert gained.mean() - 5 * gained.std() / len(gained) ** 0.5 <= policy.delta + others.delta
    assert gained.mean() > 0.005, "an adversary that gains something"


HARD_STOP = random_stopping(repeat(gaussian(noise_multiplier=3.0), 5), gamma=0.1, delta2=1e-6)
SEARCH = best_of_tries(
    repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=2.0), 5), NegativeBinomial.with_mean(eta=0, mean=4)
)


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (None, ADD),
        (PlanEvent(training=HARD_STOP), ADD),
        (PlanEvent(training=gaussian(noise_multiplier=2.0), validation=HARD_STOP), ADD),
        (PlanEvent(training=black_box(epsilon=0.3, delta=1e-8, adjacency=ADD)), ADD),
        (PlanEvent(training=poisson_gaussian(sample_rate=0.1, noise_multiplier=2.0)), REPLACE),
    ],
)
def test_what_has_no_divergence_takes_its_epsilon_and_delta_of_the_other_part(
    event: PlanEvent | None, adjacency: Adjacency
) -> None:
    cost = Guarantee(epsilon=4.0, delta=1e-5, adjacency=adjacency)
    balance = opened(FILTER, Guarantee(epsilon=10.0, delta=1e-4, adjacency=adjacency))
    takes = FILTER.amounts_of_charge(cost, event)
    assert takes == {EPSILON: 4.0, DELTA: 1e-5}
    assert balance.has_room(takes)
    balance = charged(balance, cost, event)
    assert not balance.has_room({EPSILON: 1e-9, DELTA: 0.0})
    assert balance.has_room({DIVERGENCE: room(FILTER)}), "the filter's part is untouched"
    assert guaranteed(FILTER, balance.reserved) == (4.0, 1e-5)


def test_the_split_is_of_the_whole_budget() -> None:
    limits = FILTER.amount_limits(BUDGET)
    assert (limits[EPSILON], limits[DELTA]) == (4, Addition().amount_limits(Guarantee(epsilon=1, delta=5e-5))[DELTA])
    everything = Guarantee(epsilon=6.0, delta=5e-5)
    assert FILTER.amount_limits(everything)[EPSILON] == FILTER.amount_limits(everything)[DELTA] == 0
    for short in (Guarantee(epsilon=5.999, delta=1e-4), Guarantee(epsilon=10.0, delta=4e-5)):
        with pytest.raises(BadInput, match=r"to hold the filter's part, 6.0 and 5e-05"):
            FILTER.amount_limits(short)


def test_all_that_both_parts_admit_is_the_budget() -> None:
    balance = opened(FILTER)
    balance = taken(balance, {name: float(most) for name, most in FILTER.amount_limits(BUDGET).items()})
    epsilon, delta = guaranteed(FILTER, balance.reserved)
    assert epsilon == pytest.approx(10.0, rel=1e-14)
    assert delta == 1e-4


def test_replacing_a_record_takes_four_times_the_divergence_of_a_gaussian() -> None:
    taken = [
        FILTER.amounts_of_charge(Guarantee(epsilon=1.0, delta=1e-5, adjacency=adjacency), run(2.0))[DIVERGENCE]
        for adjacency in (ADD, REPLACE)
    ]
    assert taken == pytest.approx([1.0, 4.0], rel=1e-9)


def test_a_search_takes_what_the_accountant_says_at_the_order() -> None:
    at = [
        Rdp(orders=orders).renyi_curve(SEARCH, ADD)[orders.index(8.0)]
        for orders in (ORDERS, tuple(sorted({*ORDERS, 2.71})))
    ]
    assert FILTER.amounts_of_charge(ONE, PlanEvent(training=SEARCH)) == {DIVERGENCE: pytest.approx(at[0], rel=1e-12)}
    odd = RenyiFilter(order=2.71, epsilon=9.0, delta=5e-5)
    assert odd.amounts_of_charge(ONE, run(2.0)) == {DIVERGENCE: pytest.approx(2.71 / 8, rel=1e-9)}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 50), st.floats(1, 50)), min_size=1, max_size=6))
def test_what_is_taken_covers_each_population_wherever_its_larger_sides_lie(
    sides: Sequence[tuple[float, float]],
) -> None:
    """Plan by plan the larger side is taken; of all plans together, neither side costs more."""
    plans = [
        PlanEvent(training=gaussian(noise_multiplier=one), validation=gaussian(noise_multiplier=two))
        for one, two in sides
    ]
    balance = opened(FILTER)
    for plan in plans:
        balance = charged(balance, ONE, plan)
    place = (accountant := Rdp(orders=tuple(sorted({*ORDERS, 8.0})))).orders.index(8.0)
    for name in ("training", "validation"):
        whole = compose(plan.events_by_population[name] for plan in plans)
        assert accountant.renyi_curve(whole, ADD)[place] <= float(balance.reserved[DIVERGENCE]) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"order": 1.0}, "order=1.0 > 1"),
        ({"order": float("inf")}, "order=inf to be finite"),
        ({"epsilon": 0.0}, "epsilon=0.0 > 0"),
        ({"delta": 0.0}, "0 < delta=0.0 < 1"),
        ({"order": 1.5}, r"epsilon=6.0 > 1\d\.\d+, which the conversion from order 1.5 at delta=5e-05 takes"),
    ],
)
def test_filters_that_admit_nothing_or_make_no_sense_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RenyiFilter(**({"order": 8.0, "epsilon": 6.0, "delta": 5e-5} | wrong))


@pytest.mark.parametrize("policy", [Addition(), *FILTERS])
def test_a_policy_is_read_back_as_it_was_written(policy: Policy) -> None:
    assert policy_from_config(policy.to_json()) == policy
    balance = charged(opened(policy, Guarantee(epsilon=10, delta=0.5)), ONE, run(20.0))
    assert Balance.from_json(balance.to_json()) == balance
    assert "delta" in sharing_sentence(policy, Guarantee(epsilon=10.0, delta=0.5))


def test_nothing_but_a_policy_is_called(tmp_path: Path) -> None:
    """A ledger that several people write to must not make another one's machine run anything."""
    for target, parameters in (
        ("os.mkdir", {"path": str(tmp_path / "made")}),
        ("dpsweep.accounting.ledger.book.subtract_decimals_exactly", {"amount": 1.0}),
        ("dpsweep.accounting.ledger.book.Policy", {}),
        ("dpsweep.accounting.guarantee.Guarantee", {"epsilon": 1.0, "delta": 0.0}),
        ("dpsweep.accounting.ledger.renyi_filter.RenyiFilter", {"order": 0.5, "epsilon": 1.0, "delta": 0.5}),
        ("nosuch.Thing", {}),
        ("", {}),
    ):
        with pytest.raises(BadInput, match="to name an account's policy"):
            policy_from_config({"_target_": target} | parameters)
    assert not (tmp_path / "made").exists()
