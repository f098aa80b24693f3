"""What is told of a winner: an interval that covers the choice, or the score that chose, called what it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import charge_outside
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.searches.interface import level_of_told_interval
from dpsweep.reports.content.facts import page_facts_by_name, read_bill
from dpsweep.reports.content.sections import budget_bar_segments
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.content.told_score import (
    OUTSIDE,
    REUSED,
    UNKNOWN,
    USED,
    same_answer_interval,
    same_answer_sentence,
    told_score_of_run,
)
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.commands.python_api import SweepResults
from tests.freezing import LEDGER, restored

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.clip_norm": (0.5, 1)}}
SweepOf = Callable[..., Any]


def tell(made: Any, low: float = 0.61, high: float = 0.83) -> Any:
    """Gives every score an interval that covers the choice."""
    for path in made.folder.glob("trials/*/result.json"):
        form = json.loads(path.read_text())
        if form["score"]:
            form["score"]["told"] = {"low": low, "high": high}
            path.write_text(json.dumps(form))
    return made


def test_the_winner_is_told_with_the_interval_that_covers_the_choice(sweep_of: SweepOf) -> None:
    made = tell(sweep_of(AXES))
    sweep = read_sweep(made.folder, made.ledger)
    assert sweep.winner_id is not None
    told = told_score_of_run(sweep, sweep.winner_id)
    assert told is not None
    assert (told.low, told.high, told.refusal) == (0.61, 0.83, "")
    own = sweep.row_of_trial(sweep.winner_id)
    for page in (write_report(made.folder, made.ledger), write_release(made.folder, made.ledger)):
        best = page.read_text().partition('<p class="big">')[2].partition("</div>")[0]
        assert best.startswith("61.0 to 83.0 % <small>95 % interval, with the choice of the winner allowed for</small>")
        assert "is the score chosen among 6 runs. Best scores are partly luck." in best
        for end in (own["accuracy_low"], own["accuracy_high"]):
            assert f"{100 * end:.1f}" not in best, "the interval of one score is that of the luckiest"
        form = json.loads(page.with_name("report.json").read_text())
        assert form["best"][0]["interval"] == "61.0 to 83.0 %"
    methods = (made.folder / "release" / "methods.tex").read_text()
    assert (
        r"The accuracy of the winner is 61.0 to 83.0 \% (95 \% interval, with the choice of the winner allowed for)."
        in methods
    )


def test_python_has_the_interval_that_covers_the_choice(sweep_of: SweepOf) -> None:
    made = tell(sweep_of(AXES))
    best = SweepResults(read_sweep(made.folder, made.ledger)).best
    assert best is not None
    assert (best["accuracy_low"], best["accuracy_high"]) == (0.61, 0.83)


def test_a_score_without_counts_is_told_without_an_interval(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    sweep = read_sweep(made.folder, made.ledger)
    told = told_score_of_run(sweep, str(sweep.winner_id))
    assert told is not None
    assert (told.low, told.high, told.refusal, told.interval_text) == (None, None, UNKNOWN, "")
    page = write_release(made.folder, made.ledger).read_text()
    assert "the score chosen among 6 runs. Best scores are partly luck." in page
    assert UNKNOWN in page
    assert "the choice of the winner allowed for" not in page


def test_a_single_run_was_measured_once(sweep_of: SweepOf) -> None:
    made = tell(sweep_of({"dpsgd": {"trainer.lr": (0.1,)}}))
    sweep = read_sweep(made.folder, made.ledger)
    told = told_score_of_run(sweep, str(sweep.winner_id))
    assert told is not None
    assert told.confidence_text == "95 %"
    assert told.score_sentence.endswith(" % was measured.")


def test_one_run_on_records_that_an_earlier_sweep_had_scored_is_no_measurement(sweep_of: SweepOf) -> None:
    """Its plan may have been chosen by those scores, as a search of one more run."""
    made = tell(sweep_of({"dpsgd": {"trainer.lr": (0.1,)}}))
    sweep = read_sweep(made.folder, made.ledger)
    (own,) = sweep.account.charges
    earlier = replace(own, plan="an earlier plan")
    later = replace(sweep, account=replace(sweep.account, entries=(earlier, *sweep.account.entries)))
    told = told_score_of_run(later, str(sweep.winner_id))
    assert told is not None
    assert told.interval_text == told.interval_sentence("accuracy") == ""
    assert "was measured" not in told.score_sentence
    assert told.score_sentence.endswith(f"had scored. {REUSED}")


def test_a_sweep_after_another_on_the_same_records_has_no_interval(tmp_path: Path) -> None:
    """All frozen sweeps are on one account: the first that was charged has an interval, and no other."""
    intervals = []
    for name in ("composition", "repeats", "private_selection", "proposed"):
        (folder := tmp_path / name).mkdir()
        sweep = read_sweep(restored(name, folder), Ledger(folder / LEDGER))
        told = told_score_of_run(sweep, str(sweep.winner_id))
        assert told is not None
        first = sweep.account.charges[0].plan == sweep.plan_id
        assert (told.refusal == REUSED) is not first
        assert ("told" in (sweep.results_by_trial[str(sweep.winner_id)].score or {})) is True
        intervals.append((name, told.interval_text != ""))
    assert [name for name, given in intervals if given] == ["composition"]


@pytest.mark.parametrize(
    ("name", "runs"),
    [("composition", 2), ("repeats", 4), ("private_selection", 3), ("proposed", 6), ("composition_final", 4)],
)
def test_the_level_is_divided_among_all_runs_that_may_win(name: str, runs: float, tmp_path: Path) -> None:
    plan = Plan.read(restored(name, tmp_path) / "plan.json")
    assert level_of_told_interval(plan, plan.trials[0]) == pytest.approx(0.05 / runs)


def test_a_final_run_on_other_records_chose_nothing(tmp_path: Path) -> None:
    folder = restored("disjoint", tmp_path)
    sweep = read_sweep(folder, Ledger(tmp_path / LEDGER))
    search, final = sweep.plan.trials[0], sweep.plan.final_runs[0]
    assert level_of_told_interval(sweep.plan, final) == 0.05
    assert level_of_told_interval(sweep.plan, search) == pytest.approx(0.05 / len(sweep.plan.trials))
    told = told_score_of_run(sweep, str(sweep.winner_id))
    assert told is not None
    assert told.chosen_among == USED, "not chosen among runs, but planned after the other frozen sweeps"


def test_the_words_for_a_secret_draw_have_the_mean_of_its_law_and_no_number_of_tries(tmp_path: Path) -> None:
    sweep = read_sweep(restored("private_selection", tmp_path), Ledger(tmp_path / LEDGER))
    assert re.findall(r"[\d.]+", sweep.shown.chosen_among) == ["3", "2"], "the mean, and the length of the list"


def test_what_the_same_answer_reaches(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    sweep = read_sweep(made.folder, made.ledger)
    assert same_answer_sentence(sweep).endswith("With score.metric=balanced_accuracy that score is 1 in 10.")
    assert same_answer_interval(sweep) is None


@pytest.mark.parametrize(
    ("metric", "share"), [("accuracy", None), ("f1", None), ("balanced_accuracy", 0.1), ("auroc", 0.5)]
)
def test_what_the_same_answer_reaches_is_known_by_some_metrics(
    sweep_of: SweepOf, metric: str, share: float | None
) -> None:
    made = sweep_of(AXES)
    sweep = read_sweep(made.folder, made.ledger)
    first, *others = sweep.plan.blocks
    trial = first.trials[0]
    scored = replace(trial, config={**trial.config, "score": {**trial.config["score"], "metric": metric}})
    plan = replace(sweep.plan, blocks=(replace(first, trials=(scored,)), *others))
    known = same_answer_interval(replace(sweep, plan=plan))
    assert known == (None if share is None else (share, share))


def test_a_cost_from_outside_takes_no_interval_away(sweep_of: SweepOf, tmp_path: Path) -> None:
    """It was no sweep; the interval says what it assumes of it."""
    ledger, budget = Ledger(tmp_path / "ledger.sqlite"), Guarantee(epsilon=1000.0, delta=1e-3)
    ledger.open_account("digits", budget)
    charge_outside(ledger, "digits", replace(budget, epsilon=0.5, delta=1e-6), "a survey of last year")
    made = tell(sweep_of(AXES))
    sweep = read_sweep(made.folder, made.ledger)
    told = told_score_of_run(sweep, str(sweep.winner_id))
    assert told is not None
    assert (told.low, told.high, told.refusal) == (0.61, 0.83, OUTSIDE)
    assert "earlier sweep" not in told.score_sentence


@pytest.mark.parametrize("others", [0.0, 900.0, 5000.0])
def test_the_parts_of_a_budget_bar_end_where_it_ends(sweep_of: SweepOf, others: float) -> None:
    """Where Renyi divergences add up, all charges together are more than the budget that they take."""
    made = sweep_of(AXES)
    sweep = read_sweep(made.folder, made.ledger)
    bill = replace(read_bill(sweep), others=(others, 0.0))
    segments = budget_bar_segments(bill, page_facts_by_name(sweep, bill))
    assert sum(segment.share for segment in segments) <= 1 + 1e-12
