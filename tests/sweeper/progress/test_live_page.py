"""The live page and `dpsweep watch` show what the terminal shows, and no more of what a rule hides."""

from __future__ import annotations

import re
import signal
import stat
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import dpsweep
from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.rules import rule_from_config
from dpsweep.accounting.stored_names.stored_classes import stored_form_of_config_part
from dpsweep.sweeper.commands.watch import watch
from dpsweep.sweeper.job.locks import file_lock
from dpsweep.sweeper.progress import display, live_page
from dpsweep.sweeper.progress.display import EstimatedTimeLeft, RemainingTime
from dpsweep.sweeper.progress.live_page import BEAT_SECONDS, PAGE_SECONDS, LiveFile, LivePage, live_page_html
from dpsweep.sweeper.progress.running_sweep import (
    CellState,
    CountedTrials,
    RunningSweep,
    Snapshot,
    SweepPhase,
    TimeLeft,
    words_for_rule,
)
from tests.forked_programs import Run
from tests.randomized import SEARCHES, TRAINS
from tests.source_files import ROOT
from tests.sweeper.digits_sweeps import FOUR, LIGHT, folder_of
from tests.waiting import strike_when

LINE = ("dataset=digits", "trainer=dpsgd", "trainer.lr=0.5,1,2", "trainer.clip_norm=1,2", "steps=40", *LIGHT)


@pytest.fixture
def trials(compose_priced: Callable[[Sequence[str]], PricedPlan]) -> tuple[Trial, ...]:
    return compose_priced(LINE).plan.trials


def result(trial: Trial, score: float, status: Status = Status.FINISHED) -> TrialResult:
    return TrialResult(
        trial=trial.id,
        attempt=1,
        status=status,
        score=None if status is Status.FAILED else {"value": score, "low": score - 0.1, "high": score + 0.1},
        steps=40,
        event=None,
        device="cpu",
        randomness="secret",
        seconds=2.0,
        started="2026-01-01T00:00:00+00:00",
        ended="2026-01-01T00:00:02+00:00",
    )


def snapshot(trials: Sequence[Trial], ended: Sequence[TrialResult] = (), **changed: object) -> Snapshot:
    known = Snapshot(
        ended=tuple(ended),
        done=len(ended),
        failed=sum(one.status is Status.FAILED for one in ended),
        total=len(trials),
        share=len(ended) / len(trials),
        steps=(40 * len(ended), 40 * len(trials)),
        running=(),
        features=None,
        trials=tuple(trials),
        results={one.trial: one for one in ended},
    )
    return replace(known, **changed)  # type: ignore[arg-type]


def written(folder: Path, sweep: RunningSweep, *, hides: bool = False, page: str = "curator/report.html") -> LivePage:
    own = LivePage(folder=folder, account="digits", plan="p", hides=hides, command="dpsweep sweep a=1", page=page)
    own.write_if_due(sweep, 0.0)
    return own


def test_the_time_left_moves_with_the_features_that_are_counted() -> None:
    """50,000 records at 30 a second, planned at 65 a second, before 100 s of steps."""
    left = EstimatedTimeLeft(features=RemainingTime(planned=770.0), steps=RemainingTime(planned=100.0))
    assert left.after(None, 0.0, 0.0).seconds == 870.0
    told = [left.after((done, 50_000), 0.0, done / 30).seconds for done in range(0, 50_001, 250)]
    assert all(seconds is not None for seconds in told)
    estimates = [seconds or 0.0 for seconds in told]
    assert estimates[0] == 870.0
    assert estimates[9] == pytest.approx(100 + 50_000 * 0.955 / 30, rel=0.3), "2250 records correct the plan already"
    assert estimates[100] == pytest.approx(100 + 25_000 / 30, rel=0.05)
    assert estimates[-1] == 100.0
    assert left.after(None, 0.0, 1700.0).seconds == 100.0, "features are over"
    assert left.after(None, 0.5, 1750.0).seconds == pytest.approx(50.0)


def test_without_a_planned_time_the_features_tell_when_the_first_step_comes() -> None:
    left = EstimatedTimeLeft(features=RemainingTime(planned=None), steps=RemainingTime(planned=None))
    left.after((0, 1000), 0.0, 0.0)
    left.after((100, 1000), 0.0, 10.0)
    told = left.after((200, 1000), 0.0, 20.0)
    assert (told.seconds, told.to_first_step) == (None, pytest.approx(80.0))


def test_the_phases_are_named(trials: tuple[Trial, ...]) -> None:
    words = CountedTrials(budget="b", points=trials)

    def line(phase: SweepPhase = SweepPhase.TRAINING, **known: object) -> str:
        return words.shown(snapshot(trials, **known), TimeLeft(seconds=60.0), phase).state

    assert line(features=(5, 10)) == "about 60 s to go | features of 5 of 10 records | 0 failed | b"
    assert line(running=((3, 40),)) == "about 60 s to go | 1 running, step 3 of 40 | 0 failed | b"
    assert line(running=((40, 40),)) == "about 60 s to go | scoring | 0 failed | b"
    assert line(SweepPhase.DRAWING) == "writing the results and drawing the page | 0 failed | b"


def test_the_cells_of_a_composed_map_fill(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    ended = [result(trials[0], 0.5), result(trials[1], 0.9), result(trials[2], 0.0, Status.FAILED)]
    sweep = CountedTrials(budget="b", points=trials).shown(
        snapshot(trials, ended, states={trials[3].id: CellState.RUNNING}), TimeLeft(), SweepPhase.TRAINING
    )
    (panel,) = sweep.panels
    assert (panel.across, panel.columns, panel.down, panel.rows) == ("lr", ("0.5", "1", "2"), "clip_norm", ("1", "2"))
    cells = {
        (row, column): cell
        for row, line in zip(panel.rows, panel.cells, strict=True)
        for column, cell in zip(panel.columns, line, strict=True)
    }
    by_trial = {
        trial.id: cells[str(trial.axes["trainer.clip_norm"]), str(trial.axes["trainer.lr"])] for trial in trials
    }
    states = [by_trial[trial.id].state.value for trial in trials]
    assert states == ["finished", "finished", "failed", "running", "waiting", "waiting"]
    assert [(by_trial[trial.id].text, by_trial[trial.id].shade) for trial in trials[:2]] == [
        ("50.0", 0.0),
        ("90.0", 1.0),
    ]
    page = written(tmp_path, sweep).path.read_text()
    assert ">90.0</td>" in page
    assert "3 of 6" in page
    assert LiveFile.read(tmp_path).sweep == replace(sweep, ended=())


def test_points_that_a_sampler_proposes_are_a_list(
    trials: tuple[Trial, ...],
) -> None:
    proposed = [
        replace(trial, axes={"trainer.lr": 0.1 * (place + 1), "trainer.clip_norm": 1.0 + place})
        for place, trial in enumerate(trials)
    ]
    (panel,) = CountedTrials(budget="b").shown(snapshot(proposed), TimeLeft(), SweepPhase.TRAINING).panels
    assert (len(panel.rows), len(panel.columns)) == (6, 1)
    assert panel.rows[0] == "lr 0.1, clip_norm 1"


def rules_of_configuration() -> list[SelectionRule]:
    texts = [path.read_text() for path in sorted((ROOT / "conf" / "tuning").glob("*.yaml"))]
    forms = [yaml.safe_load(text.replace("${privacy.delta}", "1.0e-5").replace("???", "0.5")) for text in texts]
    return [
        rule_from_config(stored_form_of_config_part(form, "rule"))
        for form in forms
        if form and "_target_" in form and "sweep" not in form
    ]


def test_a_rule_that_hides_its_losers_shows_no_cell_no_count_and_no_score(
    trials: tuple[Trial, ...], tmp_path: Path
) -> None:
    """Whatever is drawn and however it ends, the value and the page are the same, at each phase."""
    hiding = [rule for rule in rules_of_configuration() if rule.hides_losers]
    assert len(hiding) >= 6
    for rule in hiding:
        words = words_for_rule(rule, "a budget", 60.0, points=trials)
        for phase in (SweepPhase.TRAINING, SweepPhase.CHECKING, SweepPhase.DRAWING, SweepPhase.ENDED):
            shown = set()
            for tries in (1, 3, 6):
                ended = [result(trial, 0.625) for trial in trials[: tries - 1]]
                states = {trials[tries - 1].id: CellState.RUNNING}
                drawn = snapshot(
                    trials[:tries], ended, states=states, running=((7, 40),), killed=tries, stopped=1, lost=("x",)
                )
                sweep = words.shown(drawn, TimeLeft(seconds=17.0 * tries), phase)
                shown.add(sweep)
            (one,) = shown
            assert (one.panels, one.latest, one.ended, one.scores) == ((), (), (), "")
            assert (one.runs, one.steps, one.share, one.seconds, one.to_first_step) == (None, None, None, None, None)
            page = written(tmp_path, one, hides=True).path.read_text()
            text = re.sub(r"<style>.*</style>", "", page, flags=re.DOTALL)
            assert re.search(r"\d+ of \d+|\d+/\d+|0\.625|62\.5", text) is None
            assert "elapsed" not in text, "the time of a search grows with its tries"
            assert not any(trial.id in page for trial in trials)


def test_the_page_is_the_owners_and_is_written_as_a_sign_of_life(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    words = CountedTrials(budget="<b>", points=trials)
    sweep = words.shown(snapshot(trials), TimeLeft(seconds=9.0), SweepPhase.TRAINING)
    page = written(tmp_path, sweep)
    assert stat.S_IMODE(page.path.stat().st_mode) == 0o600
    assert "<b>" not in page.path.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["live.html"]

    def is_written(after: RunningSweep, at: float) -> bool:
        page.path.unlink()
        page.write_if_due(after, at)
        written_now = page.path.exists()
        page.path.touch()
        return written_now

    other = replace(sweep, seconds=8.0)
    assert not is_written(sweep, BEAT_SECONDS - 0.1)
    assert is_written(sweep, BEAT_SECONDS)
    assert not is_written(other, BEAT_SECONDS + PAGE_SECONDS - 0.1)
    assert is_written(other, BEAT_SECONDS + PAGE_SECONDS)
    assert is_written(replace(other, phase=SweepPhase.DRAWING), BEAT_SECONDS + PAGE_SECONDS), "a new phase at once"


def test_a_disk_that_takes_no_page_ends_no_sweep(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    sweep = CountedTrials(budget="b", points=trials).shown(snapshot(trials), TimeLeft(), SweepPhase.TRAINING)
    assert not written(tmp_path / "gone", sweep).path.exists()


def test_watch_says_what_became_of_a_sweep(
    trials: tuple[Trial, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "sweeps" / "digits" / "p"
    folder.mkdir(parents=True)
    with pytest.raises(BadInput, match="Expected an unfinished sweep below sweeps/"):
        watch([])
    with pytest.raises(BadInput, match=r"with live.html"):
        watch([str(folder)])
    words = CountedTrials(budget="b", points=trials)
    running = words.shown(snapshot(trials, [result(trials[0], 0.5)]), TimeLeft(seconds=60.0), SweepPhase.TRAINING)
    page = written(folder, running)
    before = page.path.read_bytes()
    assert watch([]) is ExitCode.STOPPED, "nobody holds the coordinator's lock"
    said = capsys.readouterr().out
    assert "is not alive" in said
    assert "the same command goes on: dpsweep sweep a=1" in said
    assert [path.name for path in folder.iterdir()] == ["live.html"]
    assert page.path.read_bytes() == before

    turns = iter([running, replace(running, phase=SweepPhase.DRAWING), replace(running, phase=SweepPhase.ENDED)])
    with file_lock(SweepFolder(root=folder).coordinator_lock_path, "The sweep"):
        monkeypatch.setattr("time.sleep", lambda seconds: page.write_if_due(next(turns), BEAT_SECONDS))
        assert watch([]) is ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"1/6 trial {trials[0].id} finished, score 0.500 in 2.0 s | {running.state}"
    assert lines[-2:] == ["The sweep is over.", str(Path("sweeps/digits/p/curator/report.html"))]
    with pytest.raises(BadInput, match="the last one is over: sweeps/digits/p"):
        watch([])
    stopped = written(folder, replace(running, phase=SweepPhase.STOPPED))
    assert watch([]) is ExitCode.STOPPED
    assert "The same command goes on: dpsweep sweep a=1" in capsys.readouterr().out
    assert 'id="dead"' not in stopped.path.read_text()


def test_a_page_that_somebody_changed_is_refused_in_one_sentence(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    sweep = CountedTrials(budget="b", points=trials).shown(snapshot(trials), TimeLeft(), SweepPhase.TRAINING)
    page = written(tmp_path, sweep)
    page.path.write_text(page.path.read_text().replace('"phase": "training"', '"phase": "winning"'))
    with pytest.raises(BadInput, match="to be a live page"):
        LiveFile.read(tmp_path)


def test_an_ended_page_leads_to_the_curators_and_a_running_one_shows_itself_anew(
    trials: tuple[Trial, ...], tmp_path: Path
) -> None:
    words = CountedTrials(budget="b", points=trials)
    training, ended = (
        words.shown(snapshot(trials), TimeLeft(), phase) for phase in (SweepPhase.TRAINING, SweepPhase.ENDED)
    )
    written(tmp_path, training)
    running = LiveFile.read(tmp_path)
    assert '<meta http-equiv="refresh" content="2">' in live_page_html(running)
    over = replace(running, sweep=ended)
    assert '<meta http-equiv="refresh" content="0; url=curator/report.html">' in live_page_html(over)
    assert 'http-equiv="refresh"' not in live_page_html(replace(over, page=""))
    assert "src=" not in live_page_html(running)


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each version of the page that a sweep of this process writes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))
    monkeypatch.setattr(display, "SECONDS", 0.02)
    monkeypatch.setattr(live_page, "PAGE_SECONDS", 0.0)
    kept: list[str] = []
    write = live_page._write_in_one_rename

    def keep(path: Path, content: bytes) -> None:
        kept.append(content.decode())
        write(path, content)

    monkeypatch.setattr(live_page, "_write_in_one_rename", keep)
    return kept


@SEARCHES
def test_no_version_of_a_hidden_searchs_page_says_more_than_its_phase(versions: list[str], tmp_path: Path) -> None:
    dpsweep.sweep([*FOUR, "tuning=private_selection", "tuning.mean=3", "page=false"])
    sweeps = [re.sub(r'"(began|written)": [\d.e+]+, ', "", one.partition('id="sweep">')[2]) for one in versions]
    allowed = {SweepPhase.SEARCHING.value, SweepPhase.CHECKING.value, SweepPhase.DRAWING.value, SweepPhase.ENDED.value}
    assert 3 <= len(set(sweeps)) <= len(allowed)
    assert {re.findall(r'"phase": "([^"]*)"', one)[0] for one in sweeps} <= allowed
    ids = [path.name for path in (tmp_path / "sweeps").glob("*/*/trials/*")]
    assert not any(name in one for name in ids for one in versions)


@TRAINS
def test_a_sweep_that_was_killed_and_went_on(
    program: Callable[..., subprocess.CompletedProcess[str]], environment: dict[str, str], tmp_path: Path
) -> None:
    """A sweep begins, is killed while it trains, is watched, goes on with `--again`, and is watched."""
    line = (*FOUR, "steps=2000")

    def pages() -> list[Path]:
        return list((tmp_path / "sweeps").glob("*/*/live.html"))

    def is_training() -> bool:
        return bool(pages()) and "running, step" in pages()[0].read_text()

    with Run(line, tmp_path, environment, module="sweeper") as process:
        strike_when(is_training, process, signal.SIGKILL)
    cli = "dpsweep.sweeper.commands.cli"
    dead = program("watch", module=cli)
    assert dead.returncode == ExitCode.STOPPED
    assert "The coordinator of this sweep is not alive" in dead.stdout
    folder = folder_of(program(*line, "--again"))
    (page,) = pages()
    assert page.parent == folder
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    over = program("watch", str(folder), module=cli)
    assert (over.returncode, over.stdout) == (0, f"The sweep is over.\n{folder}\n")
    cells = [cell for panel in LiveFile.read(folder).sweep.panels for row in panel.cells for cell in row]
    assert {cell.state for cell in cells} <= {CellState.FINISHED, CellState.KILLED}
    scores = {
        f"{100 * one.score_value:.1f}"
        for one in map(TrialResult.read, (folder / "trials").iterdir())
        if one is not None and one.score_value is not None
    }
    assert {cell.text for cell in cells if cell.text} == scores
