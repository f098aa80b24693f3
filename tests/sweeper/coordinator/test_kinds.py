"""Kinds of search: a further one is two files and a rule that names them; points have repeats, and a point wins."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import pytest

import dpsweep.accounting.searches
import dpsweep.sweeper.searches
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.records.plan import Block
from dpsweep.accounting.records.trial_result import Status
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.accounting.searches.interface import index_of_winning_run, search_class_for_plan
from dpsweep.accounting.selection.interface import THE_WINNER, Search
from dpsweep.accounting.selection.rules import RULES, Composition, MedianOfRepeats, Subsampled, rule_from_config
from dpsweep.accounting.stored_names import tags
from dpsweep.reports.content.panels import Mark, build_map_panels
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.searches.admission import Retry
from tests.randomized import SEARCHES
from tests.sweeper import proposing
from tests.sweeper.search_programs import GRID, Place, Program, result_of

pytestmark = SEARCHES

Places = Callable[..., Place]

ACCOUNTING = '''
    """Every second point of the plan; the others are never run."""

    from dpsweep.accounting.searches.open_search import OpenSearch


    class EverySecondPoint(OpenSearch):
        noun, nouns = "point", "points"

        @property
        def names_of_attempts_to_charge(self):
            return tuple(run.id for run in self.search_trials_so_far())

        @property
        def number_of_search_runs(self):
            return len(self.search_trials_so_far())

        def search_trials_so_far(self):
            return self.plan.trials[::2]

        def point_index_of_each_search_run(self):
            return range(0, len(self.plan.trials), 2)

        @classmethod
        def number_of_runs_that_may_win(cls, plan):
            return len(plan.trials[::2])

        def trials_of_unproposed_points(self):
            return self.plan.trials[1::2]
'''
SWEEPER = '''
    """Every second point of the plan, all due at once."""

    from dpsweep.sweeper.searches.open_search import AdmittedOpenSearch


    class AdmittedEverySecondPoint(AdmittedOpenSearch):
        runs = "points"
        idle = "Half of the points, {total}, are finished."
'''


class HalfOfThePoints(Composition):
    """A composition of every second point."""

    def search_kind(self, search: Search) -> str:
        """A kind that this test adds."""
        return "every_second_point"

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """Every second point."""
        return super().event(trials[::2])


class WinnerOnly(Composition):
    """A composition that lets out its winner alone; its runs are no secret draw."""

    discloses = THE_WINNER


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the rules of this test tags."""
    for tag, rule in (("half", HalfOfThePoints), ("winner_only", WinnerOnly)):
        monkeypatch.setitem(cast("dict[str, Any]", RULES), tag, rule)
        monkeypatch.setitem(tags.FAMILY_OF, tag, "rule")


@pytest.fixture
def fifth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: None) -> str:
    """Adds a kind of search by one module in each room; the tag of a rule that names it."""
    for package, text in ((dpsweep.accounting.searches, ACCOUNTING), (dpsweep.sweeper.searches, SWEEPER)):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / "every_second_point.py").write_text(dedent(text))
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.delitem(sys.modules, f"{package.__name__}.every_second_point", raising=False)
    return "half"


def under(here: Place, rule: str) -> Place:
    """The same points under another rule, at its price."""
    made = rule_from_config({"kind": rule})
    event = made.event(here.plan.priced_events)
    quote = here.priced.panel.quote(event, here.plan.delta, here.plan.adjacency, here.plan.unit)
    plan = replace(here.plan, rule={"kind": rule}, event=event)
    folder = replace(here.folder, root=here.folder.root.parent / plan.id)
    return replace(here, priced=replace(here.priced, plan=plan, rule=made, quote=quote), folder=folder)


def test_a_fifth_kind_of_search_is_charged_run_verified_and_released(place: Places, fifth: str) -> None:
    grid = place(GRID)
    here = under(grid, fifth)
    assert search_class_for_plan(here.plan).__name__ == "EverySecondPoint"
    work = here.begin()
    assert [trial.id for trial in work.due] == [trial.id for trial in here.plan.trials[::2]]
    assert reserved_amounts(here.ledger.statement("digits"))[0] < grid.priced.quote.epsilon
    proposing.go_on(here, work, fates=iter((0.5, 0.7)))
    assert "2 of 2 results are there" in verify_sweep_folder_and_describe(here.folder.root, here.ledger)
    sweep = read_sweep(here.folder.root, here.ledger)
    assert sweep.winner_id == here.plan.trials[2].id
    assert len(sweep.map_rows) == 4
    page = write_release(here.folder.root, here.ledger)
    assert len(json.loads((page.parent / "report.json").read_text())["trials"]["rows"]) == 2
    again = here.begin()
    assert again.idle == "Half of the points, 2, are finished."
    assert not again.due
    other = here.plan.trials[1]
    with pytest.raises(BadInput, match="to be among what plan"):
        here.search.block_with_id(other.id)
    result_of(other, 0.9).write(here.folder.trial_folder(other.id))
    assert read_sweep(here.folder.root, here.ledger).winner_id == here.plan.trials[2].id


MEDIAN = (*GRID, "tuning=median_of_repeats")


def test_the_median_of_three_repeats_is_priced_run_chosen_and_released(place: Places) -> None:
    here = place(MEDIAN)
    assert len(here.plan.trials) == 12, "the rule says how often each point runs"
    assert here.plan.event.is_same_as(place((*GRID, "repeats=3")).plan.event)
    work = here.begin()
    scores = ((0.99, 0.1, 0.1), (0.5, 0.6, 0.7), (0.2, 0.55, 0.56), (0.4, 0.4, 0.4))
    proposing.go_on(here, work, fates=iter([score for point in scores for score in point]))
    verify_sweep_folder_and_describe(here.folder.root, here.ledger)
    sweep = read_sweep(here.folder.root, here.ledger)
    assert sweep.winner_id == here.plan.trials[3].id, "the first run of the best point, not the luckiest run"
    assert "repeat" not in sweep.swept_keys
    assert list(sweep.table["repeat"]) == [1, 2, 3] * 4
    page = write_release(here.folder.root, here.ledger)
    report = json.loads((page.parent / "report.json").read_text())
    assert len(report["trials"]["rows"]) == 12
    assert "over regularizer and lr, 3 runs each on digits" in report["methods"]
    assert "50.0 %" in page.read_text()
    assert "compared by the median score of their 3 runs each" in page.read_text()


def test_points_that_run_less_often_have_no_median(place: Places) -> None:
    with pytest.raises(BadInput, match="repeats=2 to be at least 3 under median of repeats"):
        place((*MEDIAN, "repeats=2"))
    here = place(MEDIAN)
    fewer = replace(here.plan, blocks=(Block(trials=here.plan.trials[::3]),))
    with pytest.raises(BadInput, match="repeats=1 to be at least 3"):
        search_class_for_plan(replace(fewer, event=MedianOfRepeats().event(fewer.priced_events)))
    assert len(place((*MEDIAN, "repeats=4")).plan.trials) == 16


@pytest.mark.parametrize(
    ("scores", "points", "repeats", "winner"),
    [
        ({0: 0.9, 1: 0.5, 2: 0.8, 3: 0.7}, (0, 0, 1, 1), 2, 2),
        ({0: 0.9, 2: 0.8, 3: 0.7}, (0, 0, 1, 1), 2, 2),
        ({0: 0.99, 3: 0.8, 4: 0.7}, (0, 0, 0, 1, 1, 1), 3, 3),
        ({0: 0.9, 3: 0.95}, (0, 0, 1, 1), 2, 3),
        ({0: 0.9, 1: 0.91, 3: 0.9, 5: 0.3}, (0, 0, 0, 0, 0, 1), 1, 0),
        ({0: 0.5, 1: 0.5}, (5, 2), 1, 0),
        ({}, (0, 1), 1, None),
    ],
    ids=["mean", "incomplete", "two of three", "none complete", "proposals", "first among equals", "no score"],
)
def test_the_winner_is_a_point(
    scores: dict[int, float], points: Sequence[int], repeats: int, winner: int | None
) -> None:
    assert index_of_winning_run(Composition(), scores, points, repeats) == winner


@pytest.mark.usefixtures("rules")
def test_a_rule_that_shows_its_winner_alone_need_not_draw_in_secret(place: Places) -> None:
    """Before a run has finished there is no winner to release, and each run has its lines in the ledger."""
    here = under(place(GRID), "winner_only")
    assert here.priced.rule.hides_losers
    assert not here.priced.rule.draws_in_secret
    work = here.begin()
    with pytest.raises(BadInput, match="a finished run to release"):
        write_release(here.folder.root, here.ledger)
    proposing.go_on(here, work, fates=iter((0.2, 0.3, 0.8, 0.4)))
    page = write_release(here.folder.root, here.ledger)
    assert "80.0 %" in page.read_text()
    assert "30.0 %" not in page.read_text()
    assert "number of tries" not in page.read_text()
    with pytest.raises(BadInput, match="to hide its losers"):
        Subsampled(rule=here.priced.rule, rate=0.1)


def test_repeats_of_a_file_are_repeats(program: Program) -> None:
    """The experiments of the papers say them in their files."""
    done = program("plan", "experiment=a_fig1_mnist", "scale=smoke", module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 0, done.stderr
    assert "2 of each point" in " ".join(done.stdout.split())


@pytest.mark.parametrize("words", [("repeats=2",), ("repeats=2", "final=true")], ids=["search", "final"])
def test_a_point_wins_by_the_mean_of_its_repeats(place: Places, words: Sequence[str]) -> None:
    here = place((*GRID, *words))
    fates = (0.9, 0.1, 0.6, 0.6, Status.FAILED.value, 0.95, 0.5, 0.5, *([0.6] if "final=true" in words else []))
    work = here.begin(Retry.NONE)
    proposing.go_on(here, work, fates=iter(fates))
    chosen = here.plan.trials[2]
    assert read_sweep(here.folder.root, here.ledger).winner_id == (chosen.final or chosen).id


def test_the_map_and_the_winner_name_the_same_point(place: Places) -> None:
    here = place((*GRID, "repeats=2"))
    proposing.go_on(here, here.begin(), fates=iter((0.9, 0.1, 0.6, 0.6, 0.3, 0.3, 0.5, 0.5)))
    sweep = read_sweep(here.folder.root, here.ledger)
    cells = [cell for panel in build_map_panels(sweep.map_rows, sweep.swept_keys) for cell in panel.cells.values()]
    assert [cell.accuracy for cell in cells if cell.mark in (Mark.BEST, Mark.CHOSEN)] == [0.6]
    assert sweep.winner_id == here.plan.trials[2].id
