"""An attempt starts only with the accesses that its charge was priced over, whatever its plan is called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import PlanEvent, gaussian, no_access, poisson_gaussian, repeat
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import Started, append_body
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import charge_outside, verify_entries
from dpsweep.accounting.records.plan import priced_events_of_runs
from tests.charges import NOTHING, PANEL

CHEAP, COSTLY, DEAR = (
    PlanEvent(
        training=repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=noise), 20),
        validation=gaussian(noise_multiplier=20.0),
    )
    for noise in (4.0, 2.0, 1.0)
)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_account("digits", Guarantee(epsilon=1000.0, delta=1e-3))
    return ledger


def charge(ledger: Ledger, points: Any, trials: Any = ("a", "b"), rule: str = "composition", spares: int = 0) -> None:
    form = {
        "final": {"kind": "final", "rule": {"kind": "composition"}},
        "private_selection": {"kind": "private_selection", "mean": 3.0},
    }.get(rule, {"kind": rule})
    more = {"plan": "p", "delta": 1e-5, "opinions": PANEL, "record": {}}
    ledger.charge("digits", trials=trials, rule=form, points=points, spares=spares, **more)  # type: ignore[arg-type]


def start(ledger: Ledger, trials: tuple[str, ...], **declared: Any) -> int:
    many = {name: events if isinstance(events, tuple) else (events,) for name, events in declared.items()}
    return len(ledger.start("digits", plan="p", trials=trials, declared=many))


def refused(ledger: Ledger, trials: tuple[str, ...], **declared: Any) -> None:
    before = verify_entries(ledger.chain)
    with pytest.raises(ContractBroken, match="pays for other accesses than those that are declared: nothing trains"):
        start(ledger, trials, **declared)
    assert verify_entries(ledger.chain) == before


def test_another_plan_of_the_same_name_does_not_train_on_a_charge(ledger: Ledger) -> None:
    charge(ledger, [CHEAP, CHEAP])
    refused(ledger, ("a",), a=COSTLY, b=CHEAP)
    refused(ledger, ("a", "b"), a=COSTLY, b=COSTLY)
    refused(ledger, ("a",))
    refused(ledger, ("a",), a=CHEAP)
    refused(ledger, ("a",), a=replace(CHEAP, validation=gaussian(noise_multiplier=19.0)), b=CHEAP)
    refused(ledger, ("a",), a=replace(CHEAP, final=CHEAP), b=CHEAP)
    assert start(ledger, ("a", "b"), a=CHEAP, b=replace(CHEAP, validation=None)) == 2


def test_a_charge_of_two_runs_pays_for_one_of_each(ledger: Ledger) -> None:
    charge(ledger, [CHEAP, COSTLY])
    refused(ledger, ("a",), a=COSTLY, b=COSTLY)
    assert start(ledger, ("a",), a=COSTLY, b=CHEAP) == 1


def test_more_names_than_points_start_nothing(ledger: Ledger) -> None:
    charge(ledger, [CHEAP], tuple("abcdefghij"))
    refused(ledger, ("a",), **dict.fromkeys("abcdefghij", CHEAP))


def test_a_spare_attempt_is_one_of_those_that_its_point_stands_for(ledger: Ledger) -> None:
    charge(ledger, priced_events_of_runs([CHEAP, COSTLY], spares=2), spares=2)
    assert start(ledger, ("a", "b"), a=CHEAP, b=COSTLY) == 2
    refused(ledger, ("a",), a=DEAR, b=COSTLY)
    refused(ledger, ("c",), a=CHEAP, b=COSTLY, c=DEAR)
    refused(ledger, ("c",), a=CHEAP, b=COSTLY)
    assert start(ledger, ("c", "d"), a=CHEAP, b=COSTLY, c=COSTLY, d=CHEAP) == 2


def test_what_a_name_declared_stays_declared(ledger: Ledger) -> None:
    """Three calls, each of which would have one dear run alone."""
    charge(ledger, [COSTLY, NOTHING, NOTHING], tuple("abc"))
    assert start(ledger, ("a",), a=COSTLY, b=NOTHING, c=NOTHING) == 1
    refused(ledger, ("b",), a=NOTHING, b=COSTLY, c=NOTHING)
    refused(ledger, ("b",), a=COSTLY, b=COSTLY, c=NOTHING)
    refused(ledger, ("b",), b=NOTHING, c=NOTHING)
    assert start(ledger, ("b",), a=COSTLY, b=NOTHING, c=NOTHING) == 1


def test_each_attempt_without_a_name_has_a_point_of_its_own(ledger: Ledger) -> None:
    charge(ledger, [COSTLY, *[CHEAP] * 9], (), spares=10)
    assert start(ledger, ("a",), a=COSTLY) == 1
    refused(ledger, ("b",), a=COSTLY, b=COSTLY)
    refused(ledger, ("b",), b=CHEAP)
    assert start(ledger, ("b",), a=COSTLY, b=CHEAP) == 1
    refused(ledger, ("c", "d"), a=COSTLY, b=CHEAP, c=CHEAP, d=COSTLY)


def test_a_named_run_is_not_repeated_on_a_cheaper_spare(ledger: Ledger) -> None:
    charge(ledger, [COSTLY, CHEAP], ("a",), spares=1)
    assert start(ledger, ("a",), a=COSTLY) == 1
    refused(ledger, ("a",), a=COSTLY)


def test_turns_take_the_points_of_their_phase_before_those_of_all(ledger: Ledger) -> None:
    phases = priced_events_of_runs([CHEAP, COSTLY, DEAR], turns=[(0, 1), (1, 2)], spares=1)
    charge(ledger, phases, (), spares=3)
    refused(ledger, ("x", "y", "z"), x=DEAR, y=DEAR, z=DEAR)
    assert start(ledger, ("x", "y", "z"), x=DEAR, y=CHEAP, z=DEAR) == 3


def test_no_attempt_is_spare_without_a_point(ledger: Ledger) -> None:
    for points, spares in (([CHEAP, CHEAP], 1), ([CHEAP], 10)):
        with pytest.raises(ValueError, match=f"to be distinct and spares={spares} in"):
            charge(ledger, points, spares=spares)


def test_a_final_run_is_the_one_that_a_point_has(ledger: Ledger) -> None:
    charge(ledger, [replace(CHEAP, final=COSTLY)] * 2, rule="final", spares=1)
    final = {"a": CHEAP, "b": CHEAP}
    refused(ledger, ("f",), **final, f=PlanEvent(training=no_access(), final=DEAR))
    refused(ledger, ("f",), **final, f=COSTLY)
    refused(ledger, ("g",), **final, g=CHEAP)
    assert start(ledger, ("f",), **final, f=PlanEvent(training=no_access(), final=COSTLY)) == 1


def test_a_run_with_a_final_run_takes_no_final_runs_place(ledger: Ledger) -> None:
    charge(ledger, [replace(COSTLY, final=CHEAP), replace(CHEAP, final=CHEAP)], ("a",), "final", 1)
    refused(ledger, ("a", "b"), a=replace(COSTLY, final=CHEAP), b=COSTLY)


def test_what_a_restoration_used_up_stops_no_later_charge(ledger: Ledger) -> None:
    """Its start lines declare nothing."""
    charge(ledger, [CHEAP], ("a",))
    paid = ledger.attempts_of_plan("digits", "p").charges[0].digest
    with ledger.chain.write_transaction() as lines:
        assert lines is not None
        used = Started(trial="a", attempt=1, charge=paid)
        append_body(lines, "digits", used, plan="p")
    charge(ledger, [CHEAP], ("a",))
    assert start(ledger, ("a",), a=CHEAP) == 1


def test_a_hidden_search_has_the_points_that_were_charged(ledger: Ledger) -> None:
    charge(ledger, [CHEAP, COSTLY], ("p",), "private_selection")
    refused(ledger, ("p",), p=(CHEAP, DEAR))
    refused(ledger, ("p",), p=(CHEAP, COSTLY, COSTLY))
    refused(ledger, ("p",))
    assert start(ledger, ("p",), p=(COSTLY, CHEAP)) == 1


def test_runs_on_shared_batches_are_together_the_one_point(ledger: Ledger) -> None:
    charge(ledger, priced_events_of_runs([CHEAP, COSTLY], shared=True))
    refused(ledger, ("a", "b"), a=COSTLY, b=COSTLY)
    refused(ledger, ("a",), a=CHEAP)
    assert start(ledger, ("a", "b"), a=CHEAP, b=COSTLY) == 2


def test_a_cost_from_outside_starts_nothing(ledger: Ledger) -> None:
    charge_outside(ledger, "digits", Guarantee(epsilon=1.0, delta=0.0), "a pilot study")
    with pytest.raises(ContractBroken, match="covered by no charge"):
        start(ledger, ("a",), a=CHEAP)
