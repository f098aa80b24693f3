"""The display moves with the steps of running jobs, estimates the rest from the start, and hides what a rule hides."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from rich.console import Console

import dpsweep
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import PrivateStore, Receipt
from dpsweep.accounting.ledger.upkeep import user_ledger_place
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.sweeper import terminal
from dpsweep.sweeper.job.locks import training_lock
from dpsweep.sweeper.progress import display as module
from dpsweep.sweeper.progress.display import Display, EstimatedTimeLeft, RemainingTime, StepProgress
from dpsweep.sweeper.progress.running_sweep import CountedTrials, DisplayWords, HiddenTries, SweepPhase, TimeLeft
from dpsweep.sweeper.terminal import can_draw_progress_bar
from dpsweep.sweeper.trial import session
from tests.randomized import SEARCHES, TRAINS
from tests.sweeper.digits_sweeps import LIGHT

LINE = ("dataset=digits", "trainer=dpsgd", "trainer.lr=0.5,1,2,4", "trainer.clip_norm=1", "steps=40", *LIGHT)


@pytest.fixture
def trials(compose_priced: Callable[[Sequence[str]], PricedPlan]) -> tuple[Trial, ...]:
    return compose_priced(LINE).plan.trials


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    later = time.time_ns() + 10**9
    os.utime(path, ns=(later, later))


@contextmanager
def trained(folder: SweepFolder, trials: Sequence[Trial]) -> Iterator[None]:
    """Holds the locks of these trials, as the jobs that train them."""
    with ExitStack() as locks:
        for trial in trials:
            locks.enter_context(training_lock(folder.trial_folder(trial.id)))
        yield


def end(folder: SweepFolder, trial: Trial, status: Status = Status.FINISHED) -> None:
    result = TrialResult(
        trial=trial.id,
        attempt=1,
        status=status,
        score={"value": 0.625, "low": 0.6, "high": 0.65},
        steps=40,
        event=None,
        device="cpu",
        randomness="secret",
        seconds=2.0,
        started="2026-01-01T00:00:00+00:00",
        ended="2026-01-01T00:00:02+00:00",
    )
    folder.trial_folder(trial.id).mkdir(parents=True, exist_ok=True)
    result.write(folder.trial_folder(trial.id))


def test_the_share_moves_with_the_steps_of_running_jobs(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    folder = SweepFolder(root=tmp_path)
    runs = StepProgress(folder=folder, total=4, done=0)
    write(folder.trial_folder(trials[3].id) / "progress", "step 39/40")  # of an earlier attempt, which was killed
    runs.add_watched_trials(trials)
    assert (runs.take_snapshot().share, runs.take_snapshot().running) == (0.0, ())
    for trial in trials[:2]:
        write(folder.trial_folder(trial.id) / "progress", "step 10/40")
    with trained(folder, trials[:2]):
        snapshot = runs.take_snapshot()
    assert snapshot.share == pytest.approx(20 / 160)
    assert snapshot.running == ((10, 40), (10, 40))
    end(folder, trials[0])
    end(folder, trials[2], Status.FAILED)
    snapshot = runs.take_snapshot()
    assert [result.trial for result in snapshot.ended] == [trials[0].id, trials[2].id]
    assert (snapshot.done, snapshot.failed, snapshot.share) == (2, 1, pytest.approx(90 / 160))
    assert runs.take_snapshot().ended == ()


def test_a_killed_run_is_seen_at_the_next_look_and_counts_as_no_running_one(
    trials: tuple[Trial, ...], tmp_path: Path
) -> None:
    folder = SweepFolder(root=tmp_path / "sweep", store=PrivateStore(root=tmp_path / "private"))
    runs = StepProgress(folder=folder, total=4, done=0)
    places, receipts = [folder.trial_folder(trial.id) for trial in trials], []
    for trial, place in zip(trials, places, strict=True):
        place.mkdir(parents=True)
        receipt = Receipt(account="a", plan="p", trial=trial.id, attempt=1, charge="c", entries=1, head="h", launch="n")
        receipts.append(receipt)
    folder.private_store.announce_launch("n", last=None)
    folder.private_store.confirm_launch("n")
    runs.add_watched_trials(trials)
    for place, receipt in zip(places[:2], receipts, strict=False):
        receipt.write(place)
        Receipt.claim(place, folder.private_store, plan="p", trial=place.name)
    with trained(folder, trials[:2]):
        runs.take_snapshot()
    with trained(folder, trials[1:2]):
        snapshot = runs.take_snapshot()
    assert (snapshot.running, snapshot.lost, snapshot.killed) == (((0, 40),), (trials[0].id,), 1)
    shown = CountedTrials(budget="b").shown(snapshot, TimeLeft(), SweepPhase.TRAINING)
    assert shown.state == "1 running, step 0 of 40 | 1 killed | 0 failed | b"
    assert shown.ended == (f"0/4 trial {trials[0].id} was killed",)
    end(folder, trials[0])  # it ran on a machine whose locks are not seen here
    snapshot = runs.take_snapshot()
    assert (snapshot.done, snapshot.lost, snapshot.killed) == (1, (trials[1].id,), 1)


def test_nothing_that_a_file_says_is_trusted(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    folder = SweepFolder(root=tmp_path)
    runs = StepProgress(folder=folder, total=4, done=0)
    runs.add_watched_trials(trials)
    for trial, text in zip(trials, ("step 99999999/40", "", "step x/4", "step " + "9" * 400 + "/1"), strict=True):
        write(folder.trial_folder(trial.id) / "progress", text)
    assert runs.take_snapshot().share == pytest.approx(1 / 4)
    write(folder.trial_folder(trials[1].id) / "progress", "features 250/1000")
    assert runs.take_snapshot().features == (250, 1000)


def test_earlier_and_later_trials_count_as_much_as_the_known_ones(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    runs = StepProgress(folder=SweepFolder(root=tmp_path), total=10, done=5)
    assert runs.take_snapshot().share == pytest.approx(0.5)
    runs.add_watched_trials(trials[:2])
    assert runs.take_snapshot().share == pytest.approx(0.5)
    write(tmp_path / "trials" / trials[0].id / "progress", "step 20/40")
    assert runs.take_snapshot().share == pytest.approx(0.55)


def test_the_estimate_begins_with_the_plan_and_follows_the_pace() -> None:
    """A job of 100 s, planned at 60, that begins after 20 s of imports."""
    rest = RemainingTime(planned=60.0)
    assert rest.seconds(0.0, 0.0) == 60.0
    assert rest.seconds(0.0, 20.0) == 60.0
    for second in range(1, 100):
        remaining = rest.seconds(second / 100, 20.0 + second)
        assert remaining is not None
        assert 0.6 * (100 - second) - 1e-9 <= remaining <= 100 - second
        if second > 30:
            assert remaining >= 0.9 * (100 - second)


def test_a_sweep_of_unknown_time_is_estimated_by_its_first_steps() -> None:
    rest = RemainingTime(planned=None)
    assert rest.seconds(0.25, 0.0) is None  # what earlier commands ran
    assert rest.seconds(0.50, 10.0) == pytest.approx(20.0)
    assert rest.seconds(0.75, 20.0) == pytest.approx(10.0)


def left(planned: float | None) -> EstimatedTimeLeft:
    return EstimatedTimeLeft(features=RemainingTime(planned=0.0), steps=RemainingTime(planned=planned))


def shown(words: DisplayWords, trials: tuple[Trial, ...], root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    folder = SweepFolder(root=root)
    runs = StepProgress(folder=folder, total=len(trials), done=0)
    with Display(runs, words, left(60.0)) as display:
        display.add_watched_trials(trials)
        for trial in trials:
            write(folder.trial_folder(trial.id) / "progress", "step 30/40")
        with trained(folder, trials):
            time.sleep(0.3)
        for trial in trials:
            end(folder, trial)
    return capsys.readouterr().out


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.02)
    monkeypatch.setattr(module, "LINE_SECONDS", 0.0)


@pytest.mark.usefixtures("quick")
def test_lines_show_steps_before_any_trial_is_over(
    trials: tuple[Trial, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(CountedTrials(budget="a budget"), trials, tmp_path, capsys)
    first, _, later = text.partition(f"1/4 trial {trials[0].id} finished, score 0.625 in 2.0 s")
    assert re.search(r"0/4 \| about \d+ s to go \| 4 running, step 30 of 40 \| 0 failed \| a budget", first)
    assert "\n4/4 trial " in later
    assert later.rstrip().endswith("| all runs ended | 0 failed | a budget")


@pytest.mark.usefixtures("quick")
def test_a_search_that_hides_its_losers_shows_the_same_whatever_is_drawn(
    trials: tuple[Trial, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = HiddenTries(budget="a budget", planned=60.0)
    texts = [shown(words, trials[:tries], tmp_path / str(tries), capsys) for tries in (1, 4)]
    lines = {line for text in texts for line in text.splitlines()}
    assert lines == {"searching | a budget | about 60 s (the number of tries is secret and random)"}


@pytest.mark.parametrize("tries", [1, 4])
def test_a_bar_of_hidden_tries_has_no_end(
    trials: tuple[Trial, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    written = io.StringIO()
    shown_on = Console(file=written, force_terminal=True, width=120, highlight=False)
    monkeypatch.setattr(terminal, "Console", lambda **_: shown_on)
    runs = StepProgress(folder=SweepFolder(root=tmp_path), total=tries, done=0)
    with Display(runs, HiddenTries(budget="b", planned=None), left(None)) as display:
        display.add_watched_trials(trials[:tries])
        for trial in trials[:tries]:
            end(SweepFolder(root=tmp_path), trial)
    assert re.search(r"\d/\d", written.getvalue()) is None
    assert display._view._bar.tasks[0].total is None
    with Display(
        StepProgress(folder=SweepFolder(root=tmp_path), total=8, done=2), CountedTrials(budget="b"), left(1.0)
    ) as bar:
        pass
    assert (bar._view._bar.tasks[0].total, bar._view._bar.tasks[0].completed) == (1.0, 0.25)
    assert "2/8" in written.getvalue()


def test_a_notebook_has_a_bar_where_it_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Console(force_jupyter=True)
    for there in (True, False):
        monkeypatch.setattr(terminal, "find_spec", lambda name, there=there: object() if there else None)
        assert can_draw_progress_bar(notebook) is there
        assert not can_draw_progress_bar(Console(file=io.StringIO(), force_jupyter=False, force_terminal=False))
        assert can_draw_progress_bar(Console(force_jupyter=False, force_terminal=True))


@pytest.fixture
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))
    monkeypatch.setattr(session, "PROGRESS_SECONDS", 0.0)


@pytest.mark.long
@TRAINS
@pytest.mark.usefixtures("quick", "own_place")
def test_a_stacked_job_is_seen_while_it_trains(capsys: pytest.CaptureFixture[str]) -> None:
    """One job trains all four trials together, so that none of them is over before the last step."""
    dpsweep.sweep([*LINE, "steps=3000", "page=false"])
    before, finished, _ = capsys.readouterr().out.partition(" finished, score")
    steps = [int(step) for step in re.findall(r"4 running, step (\d+)(?: to \d+)? of 3000", before)]
    assert finished
    assert len(set(steps)) > 3
    assert steps == sorted(steps)


@SEARCHES
@pytest.mark.usefixtures("quick", "own_place")
def test_a_hidden_search_prints_no_score_and_no_count(capsys: pytest.CaptureFixture[str]) -> None:
    dpsweep.sweep([*LINE, "tuning=private_selection", "tuning.mean=3", "page=false"])
    shown = capsys.readouterr().out
    assert "searching | epsilon reserved" in shown
    assert "score 0." not in shown
    assert re.search(r"\d+/\d+", shown) is None
    assert Ledger(user_ledger_place()).account_names() == ("digits",)
