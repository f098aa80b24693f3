"""Exhibits about the price: counted by hand, or by brute force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.records.plan import Plan
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.exhibits.prices import (
    REPEATED,
    TRIES,
    epsilon_by_delta_exhibit,
    rule_prices_exhibit,
    spending_exhibit,
    sweep_with_bill_share_column,
)

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2, 0.4, 0.8), "trainer.clip_norm": (0.5, 1)}}
FATES = {1: "failed", 3: "diverged", 4: "killed", 6: "not run"}
ADD = Adjacency.ADD_OR_REMOVE_ONE
SweepOf = Callable[..., Any]


def column(sheet: Sheet, name: str) -> list[Any]:
    place = sheet.columns.index(name)
    return [row[place].text if row[place].key is None else row[place].key for row in sheet.rows]


def _with(plan: Plan, event: PlanEvent) -> Plan:
    form = plan.to_json()
    return Plan(
        account=plan.account,
        budget=plan.budget,
        delta=plan.delta,
        rule=form["rule"],
        blocks=plan.blocks,
        event=event,
    )


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
def test_the_mu_of_a_gaussian_mechanism_is_its_own(noise: float, sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    event = PlanEvent(training=events.gaussian(noise_multiplier=noise))
    shown = epsilon_by_delta_exhibit(_with(made.plan, event), charges=1)
    assert shown is not None
    (sentence,) = shown.findings
    mu = float(sentence.partition("mu = ")[2].split()[0].rstrip(";"))
    assert 1 / noise <= mu <= 1.001 / noise + 1e-3


def test_the_curve_of_a_search_that_was_charged_twice_is_not_drawn(sweep_of: SweepOf) -> None:
    assert epsilon_by_delta_exhibit(sweep_of(AXES).plan, charges=2) is None


def test_where_the_budget_went_adds_up_to_all_charged_runs(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates=FATES, repeats=(1,))
    shown = spending_exhibit(table.read_sweep(made.folder, made.ledger))
    assert shown is not None
    (sheet,) = shown.sheets
    counts = dict(zip(column(sheet, "runs"), column(sheet, "how many"), strict=True))
    assert counts == {"finished": 4, "diverged": 1, "failed": 1, "killed": 1, "not run": 1, REPEATED: 1}
    assert sum(column(sheet, "share")) == pytest.approx(1)
    assert shown.bar[-1].start + shown.bar[-1].share == pytest.approx(1)
    order = float(shown.note.partition("at order ")[2].split(",")[0])
    (run,) = {trial.event.training for trial in made.plan.trials}
    orders = np.array(Rdp().orders)
    place = int(np.abs(orders - order).argmin())
    assert sum(column(sheet, "divergence")) == pytest.approx(9 * Rdp().renyi_curve(run, ADD)[place])


def test_every_run_has_its_share_of_the_bill(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates=FATES, repeats=(1,), noises=(4.0, 8.0))
    rows = sweep_with_bill_share_column(table.read_sweep(made.folder, made.ledger)).table
    shares = [float(share) for share in rows["share"]]
    assert sum(shares) == pytest.approx(1)
    first, again, noisier = shares[0], shares[1], min(shares)
    assert again == pytest.approx(2 * first)
    assert noisier < first / 3, "twice the noise is a quarter of the divergence"


def test_one_more_run_costs_the_difference(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    shown = spending_exhibit(table.read_sweep(made.folder, made.ledger))
    assert shown is not None
    run = made.plan.trials[0].event.training
    nine, eight = (Rdp().epsilon(events.repeat(run, many), made.plan.delta, ADD) for many in (9, 8))
    said = float(shown.findings[0].partition("add epsilon ")[2].partition(",")[0])
    assert nine - eight <= said <= nine - eight + 0.001


def test_every_rule_is_priced_at_the_runs_of_this_sweep(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    shown = rule_prices_exhibit(made.plan, 5.0)
    assert shown is not None
    (sheet,) = shown.sheets
    rows = list(
        zip(*(column(sheet, name) for name in ("rule", "tries", "tried a top-10% point", "epsilon")), strict=True)
    )
    composed = [row[1:] for row in rows if row[0] == "composition"]
    assert [tries for tries, _, _ in composed] == list(TRIES)
    assert [chance for _, chance, _ in composed] == pytest.approx([1 - 0.9**tries for tries in TRIES])
    alone = float(table.read_sweep(made.folder, made.ledger).table["epsilon_alone"].max())
    assert composed[0][2] == pytest.approx(alone)
    for rule in {rule for rule, *_ in rows}:
        own = [(tries, chance, epsilon) for name, tries, chance, epsilon in rows if name == rule]
        assert own == sorted(own), "more tries, a higher chance, a higher price"
        assert len(own) == len(TRIES)
