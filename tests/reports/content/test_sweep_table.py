"""What the table says against the ledger, the plan and the result files it was read from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import paid_attempts
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.reports.content.facts import read_bill
from dpsweep.reports.content.sweep_table import Conduct, State, first_noise_multiplier, read_sweep
from tests.charges import charge_cost, start_attempts

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.clip_norm": (0.5, 1)}}
SweepOf = Callable[..., Any]


def test_every_fate_is_told_apart(troubled: Any) -> None:
    sweep = read_sweep(troubled.folder, troubled.ledger)
    states = list(sweep.table["state"])
    assert [states[place] for place in (0, 3, 5, 6, 8)] == [
        State.FINISHED,
        State.FAILED,
        State.DIVERGED,
        State.KILLED,
        State.NOT_RUN,
    ]
    assert states.count(State.FINISHED) == 66
    conducts = [sweep.table["conduct"][place] for place in (0, 3, 5, 6, 8)]
    assert conducts == [
        Conduct.AS_DECLARED,
        Conduct.UNKNOWN,
        Conduct.STOPPED_EARLY,
        Conduct.NOTHING,
        Conduct.NOTHING,
    ]
    assert list(sweep.table["attempts_charged"])[2:5] == [1, 2, 1]
    assert sweep.table["attempts_started"].sum() == 69


def test_a_killed_repeat_is_no_longer_the_result_before_it(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates={0: "failed"}, repeats=(0,))
    trial = made.plan.trials[0].id
    start_attempts(made.ledger, made.plan.account, plan=made.plan.id, trials=[trial])
    assert read_sweep(made.folder, made.ledger).table["state"][0] == State.KILLED


def test_the_winner_is_the_best_finished_point(troubled: Any) -> None:
    sweep = read_sweep(troubled.folder, troubled.ledger)
    scores = {
        trial.id: result.score["value"]
        for trial in troubled.plan.trials
        if (result := TrialResult.read(troubled.folder / "trials" / trial.id)) is not None and result.score
    }
    assert sweep.winner_id == max(scores, key=scores.__getitem__)
    assert set(sweep.winner_id_by_method) == {"dpsgd", "dpnsgd"}
    assert sweep.row_of_trial(str(sweep.winner_id))["gap"] == 0


def test_one_run_alone_is_what_the_panel_says(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, noises=(2.0, 4.0))
    sweep = read_sweep(made.folder, made.ledger)
    panel = Panel(claimants=(Pld(), Rdp()))
    for trial in (made.plan.trials[0], made.plan.trials[-1]):
        quote = panel.quote(trial.event, made.plan.delta, made.plan.adjacency)
        assert sweep.row_of_trial(trial.id)["epsilon_alone"] == quote.epsilon
        assert sweep.row_of_trial(trial.id)["noise_multiplier"] == first_noise_multiplier(trial)


def test_the_bill_is_the_ledgers(troubled: Any) -> None:
    bill = read_bill(read_sweep(troubled.folder, troubled.ledger))
    charges = troubled.ledger.statement(troubled.plan.account).charges
    assert len(charges) == 2
    assert bill.epsilon == pytest.approx(sum(entry.body["epsilon"] for entry in charges), rel=1e-12)
    assert bill.delta == pytest.approx(2e-5)
    assert bill.epsilon + bill.left[0] == pytest.approx(bill.budget[0])
    assert bill.others == (0, 0)
    assert [paid_attempts(charge) for charge in bill.charges_for_repeated_runs] == [1]


def test_integers_stay_integers(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    assert 1 in list(read_sweep(made.folder, made.ledger).table["trainer.clip_norm"])
    assert all(
        not isinstance(value, float) or value == 0.5
        for value in read_sweep(made.folder, made.ledger).table["trainer.clip_norm"]
    )


def test_other_sweeps_on_the_account_are_set_apart(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    (charge,) = made.ledger.statement(made.plan.account).charges
    cost = made.plan.budget.__class__(epsilon=1.5, delta=1e-6)
    charge_cost(made.ledger, made.plan.account, plan="another", trials=["x"], cost=cost)
    bill = read_bill(read_sweep(made.folder, made.ledger))
    assert bill.others == (1.5, 1e-6)
    assert bill.epsilon == charge.body["epsilon"]


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"format": 1}', '{"format": 99}'])
def test_what_is_no_plan_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    with pytest.raises(BadInput, match=r"^Expected "):
        read_sweep(tmp_path, Ledger(tmp_path / "ledger.sqlite"))


@pytest.mark.parametrize("account", [None, "iris", "digits"])
def test_a_ledger_that_never_charged_the_plan_is_refused(
    sweep_of: SweepOf, tmp_path: Path, account: str | None
) -> None:
    made = sweep_of(AXES)
    other = Ledger(tmp_path / "other.sqlite")
    if account is not None:
        other.open_account(account, made.plan.budget)
    with pytest.raises(BadInput, match="to be charged on digits in this ledger"):
        read_sweep(made.folder, other)


def test_a_damaged_ledger_is_not_reported_from(sweep_of: SweepOf) -> None:
    import sqlite3
    from contextlib import closing

    made = sweep_of(AXES)
    with closing(sqlite3.connect(made.ledger.path)) as connection, connection:
        connection.execute("DROP TRIGGER entries_refuse_update")
        connection.execute("UPDATE entries SET body = replace(body, 'plan', 'plom') WHERE kind = 'charge'")
    with pytest.raises(LedgerDamaged):
        read_sweep(made.folder, made.ledger)


def test_an_edited_plan_is_refused(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    path = made.folder / "plan.json"
    form = json.loads(path.read_text())
    path.write_text(json.dumps(form | {"delta": form["delta"] * 2}))
    with pytest.raises(BadInput, match="edited"):
        read_sweep(made.folder, made.ledger)
