"""The final run of a sweep: chosen once, after the search, paid for beforehand, and never run twice on one charge."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence

import pytest

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.events.build import are_same_events, no_access
from dpsweep.accounting.ledger.book import Charged, body_of_kind
from dpsweep.accounting.ledger.statement import charge_facts, charged_event
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.accounting.searches.open_search import OpenSearch
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.sweeper.searches.admission import Retry
from dpsweep.sweeper.searches.interface import RunQueue
from tests.randomized import TRAINS
from tests.sweeper.proposing import attempts, run
from tests.sweeper.search_programs import GRID, Place, Program, folder_of

MakePlace = Callable[..., Place]
DISJOINT = (*GRID, "tuning=disjoint")
FINAL = (*GRID, "final=true")
PROPOSED = (*DISJOINT, "search=random", "search.trials=3")


def search_of(here: Place) -> OpenSearch:
    assert isinstance(here.search, OpenSearch)
    return here.search


def begin(here: Place, retry: Retry = Retry.KILLED) -> RunQueue:
    return here.begin(retry)


def search(here: Place, work: RunQueue, fates: Sequence[float | str | None]) -> None:
    """Does the jobs' work for all runs of the search, one after another."""
    coming, due = iter(fates), list(work.due)
    for fate in coming:
        trial = due.pop(0) if due else work.more(1)[0]
        run(here, work, [trial], fate)


@pytest.mark.parametrize("line", [DISJOINT, FINAL, (*FINAL, "tuning=auto")], ids=["disjoint", "final", "auto"])
def test_the_best_point_runs_once_more_when_the_search_is_over(place: MakePlace, line: Sequence[str]) -> None:
    here = place(line)
    work = begin(here)
    assert work.total == 5
    assert len(work.due) == 4
    search(here, work, [0.3, 0.6, 0.9])
    assert work.more(9) == ()
    run(here, work, [work.due[3]], 0.5)
    (final,) = work.more(9)
    assert final == here.plan.final_runs[2] == search_of(here).chosen_final_run()
    assert work.more(9) == ()
    run(here, work, [final], 0.4)
    assert attempts(here).started[final.id] == 1
    assert len(here.ledger.statement("digits").charges) == 1
    again = begin(here)
    assert again.due == again.more(9) == ()
    assert "all paid" in verify_sweep_folder_and_describe(here.folder.root, here.ledger)


def test_a_sampler_proposes_and_the_best_of_its_points_runs_once_more(place: MakePlace) -> None:
    here = place(PROPOSED)
    work = begin(here)
    search(here, work, [0.7, 0.8, 0.7])  # the second wins also where its point is proposed again
    second = json.loads(here.folder.proposals_path.read_text())["proposals"][1]
    (final,) = work.more(9)
    assert final == here.plan.final_runs[second]
    run(here, work, [final], 0.4)
    assert begin(here).due == ()
    assert "all paid" in verify_sweep_folder_and_describe(here.folder.root, here.ledger)


def test_the_final_run_is_handed_over_and_the_map_is_the_searches_alone(place: MakePlace) -> None:
    here = place(DISJOINT)
    work = begin(here)
    search(here, work, [0.3, 0.6, 0.9, 0.5])
    unfinished = read_sweep(here.folder.root, here.ledger)
    assert (unfinished.winner_id, unfinished.runs.over) == (None, False)
    (final,) = work.more(9)
    run(here, work, [final], 0.4)
    sweep = read_sweep(here.folder.root, here.ledger)
    assert sweep.winner_id == final.id
    assert sweep.row_of_trial(final.id)["accuracy"] == 0.4
    assert list(sweep.table["accuracy"]) == list(sweep.map_rows["accuracy"]) == [0.3, 0.6, 0.9, 0.5]
    assert sweep.run_labels == (1, 2, 3, 4, "final")
    assert list(sweep.all_run_rows["accuracy"]) == [0.3, 0.6, 0.9, 0.5, 0.4]


def test_a_killed_run_of_the_search_is_repeated_before_the_final_run(place: MakePlace) -> None:
    here = place(DISJOINT)
    work = begin(here)
    search(here, work, [0.3, 0.6, None, 0.5])
    assert work.more(9) == ()
    again = begin(here)
    (killed,) = again.due
    run(here, again, [killed], 0.9)
    assert again.more(9) == (here.plan.final_runs[2],)
    repeat = body_of_kind(here.ledger.statement("digits").charges[-1], Charged)
    assert charge_facts(repeat).reason == "repeat"
    assert charged_event(repeat) is not None
    assert charged_event(repeat).final is None


def test_without_repeats_the_final_run_does_not_wait(place: MakePlace) -> None:
    here = place(DISJOINT)
    work = begin(here, Retry.NONE)
    search(here, work, [0.3, 0.6, None, 0.5])
    assert work.more(9) == (here.plan.final_runs[1],)


def test_a_search_in_which_nothing_finished_has_no_final_run(place: MakePlace) -> None:
    here = place(DISJOINT)
    work = begin(here)
    search(here, work, ["failed"] * 4)
    assert work.more(9) == ()
    assert work.number_of_unproposed_runs == 1


@pytest.mark.parametrize("line", [DISJOINT, (*DISJOINT, "subsample=shared")], ids=["independent", "shared"])
def test_a_killed_final_run_is_repeated_at_the_price_of_a_final_run(place: MakePlace, line: Sequence[str]) -> None:
    here = place(line)
    work = begin(here)
    search(here, work, [0.3, 0.6, 0.9, 0.5])
    run(here, work, work.more(9), None)
    again = begin(here)
    assert again.due == (here.plan.final_runs[2],)
    repeat = charged_event(body_of_kind(here.ledger.statement("digits").charges[-1], Charged))
    assert repeat is not None
    assert repeat.final is not None
    assert are_same_events(repeat.final.training, here.plan.final_runs[2].event.training)
    assert are_same_events(repeat.training, no_access())
    run(here, again, again.due, 0.4)
    assert begin(here).due == ()


def test_a_deleted_folder_keeps_the_choice_and_its_attempt(place: MakePlace) -> None:
    here = place(DISJOINT)
    work = begin(here)
    search(here, work, [0.3, 0.6, 0.9, 0.5])
    run(here, work, work.more(9), 0.4)
    shutil.rmtree(here.folder.root)
    here.folder.create_folder()
    again = begin(here, Retry.NONE)
    assert again.due == ()
    assert search_of(here).chosen_final_run() == here.plan.final_runs[2]


def test_a_second_final_run_is_not_paid_for(place: MakePlace) -> None:
    here = place(DISJOINT)
    work = begin(here)
    search(here, work, [0.3, 0.6, 0.9, 0.5])
    run(here, work, work.more(9), 0.4)
    with pytest.raises(BadInput, match="never chosen again"):
        search_of(here).store_final_run(0)
    here.folder.final_point_path.unlink()
    other = search_of(here).store_final_run(0)
    with pytest.raises(ContractBroken, match="covered by no charge"):
        work.log.start_and_issue_receipts([other])


def test_the_choice_of_another_plan_or_of_no_point_is_refused(place: MakePlace) -> None:
    here = place(DISJOINT)
    begin(here)
    for content, reason in (
        ({"plan": "another", "point": 0}, "it is one of plan another"),
        ({"plan": here.plan.id, "point": 4}, "to be one of the 4"),
        ({"plan": here.plan.id, "point": -1}, "to be whole and readable"),
        ({"plan": here.plan.id}, "to be whole and readable"),
    ):
        here.folder.final_point_path.write_text(json.dumps(content))
        with pytest.raises(BadInput, match=reason):
            here.search.search_and_final_runs()


@pytest.mark.long
@TRAINS
def test_from_command_to_release(program: Program) -> None:
    words = (*DISJOINT, "steps=6")
    done = program(*words)
    folder = folder_of(done)
    again = program(*words)
    assert "All 4 trials" in again.stdout
    release = program("release", str(folder.root), module="dpsweep.sweeper.commands.cli")
    assert release.returncode == 0, release.stderr
    page = (folder.release_folder / "report.html").read_text()
    assert "Final run" in page
    assert "The search read one part of the records, about 20%" in page
    assert all(f'data-fact="{name}"' in page for name in ("search_epsilon", "final_epsilon"))
    config = (folder.release_folder / "config.yaml").read_text()
    assert "use: final" in config
    verified = program("verify", str(folder.root), module="dpsweep.sweeper.commands.cli")
    assert "5 of 5 results are there, all paid" in verified.stdout
    budget = program("budget", module="dpsweep.sweeper.commands.cli")
    assert "4 runs and 1 final run" in " ".join(budget.stdout.replace("│", " ").split())
    exported = program("export", str(folder.root), module="dpsweep.sweeper.commands.cli")
    assert exported.returncode == 0, exported.stderr
