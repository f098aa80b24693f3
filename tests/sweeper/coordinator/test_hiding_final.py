"""A final run after a search that hides its losers: on the search's charge, once, and its model is handed over."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.trial_result import MODEL_FILE, Status, TrialResult
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.accounting.searches.interface import search_class_for_plan
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.searches.stored_draw import StoredDraw, coin_bits_of_secret_part
from dpsweep.accounting.selection.interface import Draw
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.pages.release import write_release
from tests.randomized import SEARCHES
from tests.sweeper.search_programs import (
    GRID,
    GRID_WINNER,
    ONCE,
    POISSON,
    SELECTION,
    Place,
    Program,
    bodies,
    finish,
    folder_of,
    released,
    work,
)

pytestmark = SEARCHES

MakePlace = Callable[..., Place]
AGAIN = (*SELECTION, "final=true")
SUBSAMPLED = (*GRID, "tuning=subsampled", "tuning.rule.mean=3")
ON_ALL = (*SUBSAMPLED, "tuning.train_on=all")
LINES = [AGAIN, (*GRID_WINNER, "final=true"), SUBSAMPLED, ON_ALL]
IDS = ["selection", "best of grid", "rest", "all"]


@pytest.mark.parametrize(
    "line",
    [LINES[0], pytest.param(LINES[1], marks=pytest.mark.long), *LINES[2:]],
    ids=IDS,
)
def test_the_winner_runs_once_more_on_the_charge_of_the_search(place: MakePlace, line: Sequence[str]) -> None:
    here = place(line)
    assert search_class_for_plan(here.plan) is SecretDraw
    log = here.plant(Draw(tries=(0, 1, 2, 3)))
    final = finish(log, {0: 0.3, 1: 0.8, 2: None, 3: 0.4}, 0.6)
    assert final == here.plan.final_runs[1]
    assert [entry.kind for entry in here.ledger.statement("digits").entries] == ["open", *ONCE, "launch"]
    assert here.admit().receipt.launch == "", "it is over"
    assert here.admit().final_run_if_due(1) == ()
    assert "ran nothing but its draw" in verify_sweep_folder_and_describe(here.folder.root, here.ledger)
    sweep = read_sweep(here.folder.root, here.ledger)
    assert (sweep.winner_id, sweep.runs.over, sweep.row_of_trial(final.id)["accuracy"]) == (final.id, True, 0.6)
    out = released(here)
    assert out[MODEL_FILE] == f"trained at {dict(final.axes)}".encode()
    page = out["report.html"].decode()
    assert "60.0 %" in page
    assert not any(score in page for score in ("30.0 %", "80.0 %", "40.0 %"))


@pytest.mark.parametrize("line", [AGAIN, SUBSAMPLED], ids=["selection", "subsampled"])
def test_a_killed_final_run_is_never_repeated_and_the_searches_winner_stays(
    place: MakePlace, line: Sequence[str]
) -> None:
    here = place(line)
    log = here.plant(Draw(tries=(0, 1, 2, 3)))
    final = finish(log, dict(enumerate((0.3, 0.8, 0.1, 0.4))), None)
    assert final is not None
    again = here.admit()
    assert again.receipt.launch == ""
    assert [trial.id for trial in again.states_of_runs().killed] == [final.id]
    sweep = read_sweep(here.folder.root, here.ledger)
    assert sweep.winner_id == log.drawn_tries_in_current_state()[1].trial.id
    assert b"80.0 %" in released(here)["report.html"]


def test_a_coordinator_that_died_before_the_final_run_goes_on_with_it(place: MakePlace) -> None:
    here = place(SUBSAMPLED)
    log = here.plant(Draw(tries=(3, 0)))
    work(log, {0: 0.8, 1: 0.3})
    unfinished = read_sweep(here.folder.root, here.ledger)
    assert not unfinished.runs.over
    with pytest.raises(BadInput, match="to be finished: an interrupted search"):
        write_release(here.folder.root, here.ledger)
    again = here.admit()
    assert again.receipt.launch
    assert [trial.id for trial in again.states_of_runs().fresh] == [here.plan.final_runs[3].id]
    finish(again, {}, 0.7)
    assert read_sweep(here.folder.root, here.ledger).winner_id == here.plan.final_runs[3].id


def test_a_search_without_a_winner_has_no_final_run(place: MakePlace) -> None:
    here = place((*POISSON, "final=true"))
    log = here.plant(Draw(tries=()))
    assert finish(log, {}, None) is None
    assert here.admit().receipt.launch == ""
    sweep = read_sweep(here.folder.root, here.ledger)
    assert (sweep.winner_id, sweep.runs.over, sweep.plan.final_runs != ()) == (None, True, True)
    assert released(here)


@pytest.mark.parametrize("line", [AGAIN, SUBSAMPLED], ids=["selection", "subsampled"])
def test_neither_ledger_nor_release_tells_how_many_tries_came_before_it(
    place: MakePlace, line: Sequence[str], tmp_path: Path
) -> None:
    seen = []
    for name, tries in (("few", (1,)), ("many", (1, 0, 2, 3, 0))):
        here = place(line, name, Ledger(tmp_path / name / "ledger.sqlite"))
        finish(here.plant(Draw(tries=tries)), dict.fromkeys(range(5), 0.4) | {0: 0.8}, 0.6)
        seen.append((bodies(here.ledger), released(here)))
    assert seen[0] == seen[1]


def test_a_result_of_the_final_run_that_was_changed_is_found(place: MakePlace) -> None:
    here = place(SUBSAMPLED)
    final = finish(here.plant(Draw(tries=(0, 1))), {0: 0.3, 1: 0.8}, 0.6)
    assert final is not None
    path = here.folder.trial_folder(final.id) / "result.json"
    path.write_text(path.read_text().replace("0.6", "0.9"))
    with pytest.raises(ContractBroken, match=f"result that trial {final.id} ended with"):
        verify_sweep_folder_and_describe(here.folder.root, here.ledger)


def test_a_deleted_final_run_is_not_made_again(place: MakePlace) -> None:
    here = place(SUBSAMPLED)
    final = finish(here.plant(Draw(tries=(0, 1))), {0: 0.3, 1: 0.8}, 0.6)
    assert final is not None
    shutil.rmtree(here.folder.trial_folder(final.id))
    assert here.admit().final_run_if_due(1) == ()


@pytest.mark.parametrize("knows_winner", [True, False])
def test_an_older_copy_of_the_folder_makes_no_second_final_run(
    place: MakePlace, tmp_path: Path, knows_winner: bool
) -> None:
    here = place(AGAIN)
    log = here.plant(Draw(tries=(0, 1)))
    work(log, {0: 0.3, 1: 0.8})
    older = shutil.copytree(here.folder.root, tmp_path / "older")
    if not knows_winner:
        (older / here.folder.outcome_path.name).unlink()
    assert finish(log, {}, 0.6)
    shutil.rmtree(here.folder.root)
    shutil.copytree(older, here.folder.root)
    with pytest.raises(BadInput, match=r"does not show that trial \w+ began"):
        here.admit()
    with pytest.raises(ContractBroken, match=r"does not show that trial \w+ began"):
        verify_sweep_folder_and_describe(here.folder.root, here.ledger)


def test_each_search_has_coins_of_its_own_which_jobs_read_with_the_draw(place: MakePlace) -> None:
    here = place(SUBSAMPLED)
    log = here.admit()
    coins = log.stored.coins
    assert len(bytes.fromhex(coins)) == 32
    assert coins not in repr(log)
    trial, plan = here.plan.final_runs[0], log.receipt.plan
    assert coin_bits_of_secret_part(trial, plan, here.folder) == coins
    assert coin_bits_of_secret_part(place(AGAIN).plan.trials[0], plan, here.folder) == ""
    with pytest.raises(ContractBroken, match="Expected the draw of plan"):
        coin_bits_of_secret_part(trial, "another", here.folder)
    here.folder.draw_path.unlink()
    with pytest.raises(ContractBroken, match="Expected the draw of plan"):
        coin_bits_of_secret_part(trial, plan, here.folder)


@pytest.mark.long
@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("line", [SUBSAMPLED, AGAIN], ids=["subsampled", "selection"])
def test_from_command_to_release(program: Program, ledger: Ledger, line: Sequence[str]) -> None:
    folder = folder_of(program(*line))
    plan, stored = Plan.read(folder.plan_path), StoredDraw.read(folder.draw_path)
    assert stored is not None
    final = SecretDraw(plan=plan, folder=folder).chosen_final_run()
    assert final is not None
    result = TrialResult.read(folder.trial_folder(final.id))
    assert result is not None
    assert result.status is Status.FINISHED
    assert result.score_value is not None
    assert [entry.kind for entry in ledger.statement("digits").entries] == ["open", "data", *ONCE]
    assert "ran nothing but its draw" in verify_sweep_folder_and_describe(folder.root, ledger)
    page = write_release(folder.root, ledger)
    assert f"{100 * result.score_value:.1f} %" in page.read_text()
    config = yaml.safe_load((page.parent / "config.yaml").read_text())
    assert config["trainer"]["lr"] == final.config["trainer"]["lr"]
    everything = b"".join(path.read_bytes() for path in page.parent.iterdir())
    assert not any(
        one.trial.id.encode() in everything for one in SecretDraw(plan=plan, folder=folder).states_of_tries(stored)
    )
    assert not stored.coins or stored.coins.encode() not in everything
    curators = (folder.root / "curator" / "report.html").read_text()
    topic = "joined it with probability 0.1, by a coin of its own" if stored.coins else "once more on the same records"
    assert topic in curators
    assert topic in page.read_text()
    again = program(*line)
    assert "nothing more is run or charged" in again.stdout
    assert json.loads(folder.draw_path.read_text())["salt"] == stored.salt
