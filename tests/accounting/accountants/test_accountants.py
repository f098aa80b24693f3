"""Laws that every accountant keeps: it prices or refuses every kind of event, and more access never costs less."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Conversion, Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    above_threshold,
    best_of_tries,
    compose,
    from_json,
    gaussian,
    no_access,
    non_private,
    poisson_gaussian,
    poisson_sampled,
    random_stopping,
    repeat,
    to_json,
    worst_of_events,
)
from dpsweep.accounting.events.dp_accounting_events import from_dp_accounting
from dpsweep.accounting.events.trial_counts import Poisson
from dpsweep.accounting.events.types import PoissonSampledDpEvent, SampledWithoutReplacementDpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.forced_epsilon import lower_bound_of_accountant
from dpsweep.accounting.stored_names.stored_classes import build_from_stored_form
from tests.accounting.event_kinds import ADD, DISCRETISATION, KINDS, LAW, REPLACE, dpsgd
from tests.accounting.library_events import to_dp_accounting

CONF = Path(__file__).parents[3] / "conf" / "accountant"
ACCOUNTANTS = [
    pytest.param(Rdp(), id="rdp"),
    pytest.param(Rdp(conversion=Conversion.MIRONOV), id="rdp-mironov"),
    pytest.param(Pld(), id="pld"),
    pytest.param(Prv(), id="prv"),
]
ACCOUNTANTS += [
    pytest.param(one, id=one.name)
    for path in sorted(CONF.glob("*.yaml"))
    for one in build_from_stored_form(yaml.safe_load(path.read_text()), "accountant").claimants
    if one not in [param.values[0] for param in ACCOUNTANTS]
]
"""These, and those of conf/accountant that are none of them."""
every_accountant = pytest.mark.parametrize("accountant", ACCOUNTANTS)
every_kind = pytest.mark.parametrize("kind", KINDS)
every_adjacency = pytest.mark.parametrize("adjacency", [ADD, REPLACE])


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
    assert lower_bound_of_accountant(accountant, event, 1e-5, adjacency) <= price
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


@dataclass(frozen=True)
class LaplaceDpEvent(DpEvent):
    """An event that no accountant here knows."""

    noise_multiplier: float


@every_accountant
@every_kind
def test_unknown_events_are_refused_inside_every_kind(accountant: Accountant, kind: str) -> None:
    unknown = LaplaceDpEvent(noise_multiplier=1.0)
    wrapped = {
        "part": poisson_sampled(unknown, sample_rate=0.1),
        "worst": worst_of_events([unknown, dpsgd(1)]),
        "negative binomial": best_of_tries(unknown, LAW),
        "poisson search": best_of_tries(unknown, Poisson(mean=5.0)),
        "stopped": best_of_tries(unknown, LAW, limit=200),
        "random stopping": random_stopping(unknown, gamma=0.2, delta2=1e-9),
        "threshold": above_threshold(unknown, gamma=0.2, limit=200),
    }.get(kind, compose([KINDS[kind], unknown]))
    for adjacency in (ADD, REPLACE):
        with pytest.raises(UnsupportedEvent):
            accountant.epsilon(wrapped, 1e-5, adjacency)


@every_accountant
def test_no_access_costs_nothing(accountant: Accountant) -> None:
    assert accountant.epsilon(no_access(), 1e-5, ADD) == 0
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
@pytest.mark.parametrize(
    "event",
    [gaussian(noise_multiplier=3.0), compose([dpsgd(5), dpsgd(5, 2.0)]), repeat(compose([dpsgd(5)]), 3)],
    ids=lambda event: type(event).__name__,
)
def test_an_event_of_dp_accounting_is_refused_until_it_is_converted(accountant: Accountant, event: DpEvent) -> None:
    foreign = to_dp_accounting(event)
    for refuse in (
        lambda: accountant.epsilon(foreign, 1e-5, ADD),
        lambda: repeat(foreign, 3),
        lambda: compose([dpsgd(2), foreign]),
        lambda: worst_of_events([foreign]),
    ):
        with pytest.raises(UnsupportedEvent) as refusal:
            refuse()
        assert str(refusal.value).endswith(
            f"dp_accounting.{type(event).__name__}, which is no event of dpsweep: convert it with from_dp_accounting."
        )
    assert accountant.epsilon(from_dp_accounting(foreign), 1e-5, ADD) == accountant.epsilon(event, 1e-5, ADD)


@every_accountant
@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_delta_that_is_no_probability_is_refused(accountant: Accountant, delta: float) -> None:
    with pytest.raises(ValueError, match=r"Expected (0 < )?delta="):
        accountant.epsilon(dpsgd(1), delta, ADD)


@every_accountant
def test_the_lower_bound_is_below_every_upper_bound(accountant: Accountant) -> None:
    for event in (dpsgd(1000), dpsgd(500, 3.0), repeat(gaussian(noise_multiplier=4.0), 7)):
        lower = lower_bound_of_accountant(accountant, event, 1e-5, ADD)
        assert lower <= min(other.epsilon(event, 1e-5, ADD) for other in (Rdp(), Pld(), Prv()))
