"""A plan is over when each of its runs has finished: then a repeated command prepares no training."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dpsweep.sweeper.searches.admission import Retry
from dpsweep.sweeper.searches.interface import RunQueue, admitted_search_for_plan
from tests.randomized import SEARCHES, TRAINS
from tests.sweeper.proposing import run
from tests.sweeper.search_programs import GRID, SELECTION, Place, Program
from tests.waiting import HANGS

FINAL = (*GRID, "tuning=disjoint")
PROPOSED = (*GRID, "search=random", "search.trials=3")


def begin(here: Place) -> RunQueue:
    return here.begin()


def over(here: Place) -> bool:
    return admitted_search_for_plan(here.priced, here.folder, here.ledger, Retry.KILLED).are_all_runs_finished()


@pytest.mark.parametrize(("line", "runs"), [(GRID, 4), (FINAL, 5), (PROPOSED, 3)], ids=["grid", "final", "proposed"])
def test_a_plan_is_over_after_its_last_run(place: Callable[..., Place], line: Sequence[str], runs: int) -> None:
    here = place(line)
    work = begin(here)
    due = list(work.due)
    for _ in range(runs):
        assert not over(here)
        run(here, work, [due.pop(0) if due else work.more(1)[0]], 0.5)
    assert over(here)


@pytest.mark.parametrize("fate", ["failed", None])
def test_a_failed_or_killed_run_is_looked_at_again(place: Callable[..., Place], fate: str | None) -> None:
    here = place(GRID)
    work = begin(here)
    for trial, own in zip(work.due, (0.5, 0.5, fate, 0.5), strict=True):
        run(here, work, [trial], own)
    assert not over(here)


@SEARCHES
def test_a_secret_search_says_itself_whether_it_is_over(place: Callable[..., Place]) -> None:
    here = place(SELECTION)
    here.admit()
    assert not over(here)


@TRAINS
@pytest.mark.usefixtures("pages")
def test_a_command_with_nothing_left_to_do_prepares_no_training(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    first = program(*GRID)
    assert first.returncode == 0, first.stderr
    command = [sys.executable, "-X", "importtime", "-m", "sweeper", *GRID]
    again = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=HANGS)
    assert again.returncode == 0, again.stderr
    assert "All 4 trials of this plan are finished; nothing is run or charged." in again.stdout
    assert again.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    imported = {line.rpartition("|")[2].strip() for line in again.stderr.splitlines()}
    assert imported.isdisjoint({"torch", "matplotlib", "pandas", "seaborn"})
    assert "hydra" in imported
