"""Files that were cut short: said by name, never guessed, and the same command goes on once they are gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.ledger.upkeep import verify_entries
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.searches.interface import search_for_plan
from tests.faults.sandbox import CHECKPOINTS, FAULTS, SWEEP, Sandbox, agree, alike, sentence
from tests.faults.syscalls import Stroke

pytestmark = FAULTS

Make = Callable[[tuple[str, ...]], Sandbox]


def cut(sandbox: Sandbox, name: str) -> tuple[Path, bytes]:
    """Takes the last third of a file of the sweep or of its private store; returns what it was."""
    path = sorted(sandbox.root.rglob(name))[0]
    whole = path.read_bytes()
    path.write_bytes(whole[: 2 * len(whole) // 3])
    return path, whole


def refused(sandbox: Sandbox, name: str) -> tuple[Path, bytes]:
    """Cuts a file: the command names it in its one sentence, and charges and starts nothing."""
    before = sandbox.ledger.statement("digits").entries
    path, whole = cut(sandbox, name)
    assert str(path) in sentence(sandbox.run(), ExitCode.BAD_INPUT)
    assert sandbox.ledger.statement("digits").entries == before
    return path, whole


@pytest.mark.parametrize(("name", "charges"), [("plan.json", 1), ("trials/*/result.json", 2)])
def test_a_cut_plan_or_result_is_refused_and_without_it_the_command_goes_on(
    finished: Sandbox, undisturbed: Sandbox, name: str, charges: int
) -> None:
    """A plan follows from the command; where a result is lost, the trial runs again on another charge."""
    path, _ = refused(finished, name)
    path.unlink()
    finished.finish(1)
    assert finished.charges == charges
    alike(finished, undisturbed)


def test_a_cut_outcome_is_refused_and_without_it_the_draw_says_the_same(searched: Sandbox) -> None:
    path, whole = refused(searched, "outcome.json")
    path.unlink()
    searched.finish(1)
    assert path.read_bytes() == whole
    assert searched.charges == 1


@pytest.mark.long
def test_a_cut_draw_is_refused_until_it_is_put_back(searched: Sandbox) -> None:
    path, whole = refused(searched, "draw.json")
    path.write_bytes(whole)
    searched.finish(1)
    assert searched.charges == 1


@pytest.mark.long
def test_a_draw_that_is_lost_takes_its_search_with_it_and_another_one_is_charged(searched: Sandbox) -> None:
    path, whole = refused(searched, "draw.json")
    path.unlink()
    done = searched.run()
    assert done.code == ExitCode.DONE, done.err
    assert path.read_bytes() != whole
    assert searched.charges == 2
    verify_entries(searched.ledger.chain)


@pytest.mark.long
def test_without_the_result_of_its_winner_a_search_is_refused_and_never_run_again(searched: Sandbox) -> None:
    folder = searched.folder
    place = json.loads(folder.outcome_path.read_text())["winner"]
    path, whole = refused(
        searched,
        f"trials/{search_for_plan(Plan.read(folder.plan_path), folder).search_and_final_runs()[place].id}/result.json",
    )
    path.unlink()
    looks = searched.looks
    assert "the result of the winning try" in sentence(searched.run(), ExitCode.BAD_INPUT)
    assert searched.looks == looks
    path.write_bytes(whole)
    searched.finish(1)
    assert searched.charges == 1


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("trials/*/receipt.json", marks=pytest.mark.long),
        pytest.param("trials/*/steps-1", marks=pytest.mark.long),
        "trials/*/checkpoint-1",
    ],
)
def test_an_attempt_whose_papers_were_cut_counts_as_killed_and_its_trial_is_charged_again(
    interrupted: Sandbox, undisturbed: Sandbox, name: str
) -> None:
    cut(interrupted, name)
    interrupted.finish(1)
    assert interrupted.charges == 2
    agree(interrupted, undisturbed)


def test_a_cut_study_is_said_costs_nothing_and_is_written_anew(finished: Sandbox, undisturbed: Sandbox) -> None:
    path, _ = cut(finished, "study.log")
    done = finished.run()
    assert done.code == ExitCode.DONE
    (said,) = done.err.splitlines()
    assert f"Expected {path} to be a study that can be written" in said
    assert done.report.exists()
    path.unlink()
    finished.finish(1)
    agree(finished, undisturbed)
    assert finished.charges == 1


@pytest.mark.long
def test_a_study_is_written_whole_or_not_at_all(sandbox: Make, undisturbed: Sandbox) -> None:
    box = sandbox((*SWEEP, *CHECKPOINTS))
    box.run(Stroke.KILL, undisturbed.when(r"os.rename .*study\.log"))
    assert not box.folder.optuna_study_path.exists()
    box.finish(1)
    agree(box, undisturbed)
    assert box.charges == 1
