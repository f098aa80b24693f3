"""`make reproduce FIGURE=all`: what a limit leaves for later, what ends the command, and the budget for lost runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, DpsweepError, ExitCode
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.reports.reproduction.every_figure import Piece, make_figures_within_hours, training_seconds_from_plan_text
from dpsweep.reports.reproduction.training import TrainingFailed, raise_budget_if_charged_runs_were_lost
from dpsweep.sweeper.timing.time_estimate import rough_duration_text
from tests.charges import charge_cost

PIECES = [Piece(name=name, seconds=seconds) for name, seconds in (("a", 60.0), ("b", 7200.0), ("c", math.inf))]


def test_a_limit_leaves_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    made: list[str] = []
    assert make_figures_within_hours(PIECES, made.append, hours=math.inf) == 0
    assert made == ["a", "b", "c"]
    made.clear()
    assert make_figures_within_hours(PIECES, made.append, hours=1.0) == 0
    assert made == ["a", "c"], "a time that nobody knows is tried as long as time is left"
    assert "Left for later by HOURS=1: b: about 2.0 h." in capsys.readouterr().out
    made.clear()
    make_figures_within_hours(PIECES, made.append, hours=0.0)
    assert made == []


def test_one_that_fails_stops_no_other_and_a_stop_stops_all(tmp_path: Path) -> None:
    made: list[str] = []

    def fails(name: str, error: DpsweepError) -> None:
        made.append(name)
        if name == "a":
            raise error

    assert (
        make_figures_within_hours(PIECES, lambda name: fails(name, BadInput("no data")), hours=math.inf)
        == ExitCode.BAD_INPUT
    )
    assert made == ["a", "b", "c"]
    made.clear()
    stopped = TrainingFailed(ExitCode.STOPPED, tmp_path)
    assert make_figures_within_hours(PIECES, lambda name: fails(name, stopped), hours=math.inf) == ExitCode.STOPPED
    assert made == ["a"]


@pytest.mark.parametrize("seconds", [1.0, 75.0, 2340.0, 5340.0, 9000.0, 36000.0, 4.6e6])
def test_a_plans_time_is_read_as_it_is_printed(seconds: float) -> None:
    assert training_seconds_from_plan_text(
        f"│time │ {rough_duration_text(seconds)} on this machine │"
    ) == pytest.approx(seconds, rel=0.02)
    assert training_seconds_from_plan_text("time: unknown") == math.inf


def test_a_figures_budget_is_raised_for_lost_runs_and_for_nothing_else(tmp_path: Path) -> None:
    ledger, budget = Ledger(tmp_path / "ledger.sqlite"), Guarantee(epsilon=1.0, delta=1e-5)
    ledger.open_account("digits", budget)
    cost = Guarantee(epsilon=0.75, delta=1e-5)
    charge_cost(ledger, "digits", plan="0123abcd", trials=["t"], cost=cost)
    assert not raise_budget_if_charged_runs_were_lost(["Plan 4567abcd on digits"], ledger), (
        "a plan that was never charged keeps the declared budget"
    )
    assert not raise_budget_if_charged_runs_were_lost(["no plan"], ledger)
    assert raise_budget_if_charged_runs_were_lost(["Plan 0123abcd on digits"], ledger)
    higher = ledger.statement("digits").budget
    assert (higher.epsilon, higher.delta) == pytest.approx((1.75, 2e-5))
