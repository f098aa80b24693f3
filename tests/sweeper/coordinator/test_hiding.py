"""Searches that hide their losers: what runs is the stored draw, charged once, and nothing is made twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, BudgetRefused
from dpsweep.accounting.ledger.book import Fingerprint, Launched
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.accounting.searches.interface import search_class_for_plan as kind_of_search
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.searches.stored_draw import SearchOutcome, StoredDraw
from dpsweep.accounting.selection.interface import Draw
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.searches.admission import Retry
from dpsweep.sweeper.timing.time_estimate import Cost, estimated_wall_seconds_of_plan, timing_key_of_config
from dpsweep.sweeper.trial.build import identity_for_initial_weights
from tests.forked_programs import Run
from tests.randomized import SEARCHES
from tests.sweeper.search_programs import (
    GRID,
    GRID_WINNER,
    ONCE,
    POISSON,
    SELECTION,
    STOPPING,
    THRESHOLD,
    Compose,
    Place,
    Program,
    folder_of,
    released,
    result_of,
    work,
)
from tests.waiting import strike_when

pytestmark = SEARCHES

HIDING = [SELECTION, POISSON, GRID_WINNER, STOPPING, THRESHOLD]


@pytest.mark.usefixtures("pages")
def test_a_search_from_command_to_release_and_back_again(program: Program, ledger: Ledger, tmp_path: Path) -> None:
    folder = folder_of(done := program(*SELECTION))
    assert "release/ may leave" in done.stdout
    plan = Plan.read(folder.plan_path)
    stored = StoredDraw.read(folder.draw_path)
    assert stored is not None
    tries = SecretDraw(plan=plan, folder=folder).states_of_tries(stored)
    assert {path.name for path in folder.trials_folder.iterdir()} == {one.trial.id for one in tries}
    assert [one.trial.config["draw"] for one in tries] == list(range(len(stored.draw.tries)))
    assert [one.trial.axes for one in tries] == [plan.trials[point].axes for point in stored.draw.tries]
    assert all(one.result is not None and one.result.status is Status.FINISHED for one in tries)
    assert stat.S_IMODE(folder.draw_path.stat().st_mode) == stat.S_IMODE(folder.outcome_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700
    assert [entry.kind for entry in ledger.statement("digits").entries] == ["open", "data", *ONCE]
    assert not (tmp_path / "speeds.json").exists(), "a shared file would tell which points were drawn"
    assert "ran nothing but its draw" in verify_sweep_folder_and_describe(folder.root, ledger)

    (account,) = json.loads(program("budget", "--json", module="dpsweep.sweeper.commands.cli").stdout)
    assert [charge["runs"] for charge in account["charges"]] == [1]

    winner = max(tries, key=lambda one: one.score or 0.0)
    page = write_release(folder.root, ledger)
    html = page.read_text()
    assert {path.name for path in page.parent.iterdir()} == {
        "report.html",
        "report.json",
        "config.yaml",
        "winner.json",
        "model.safetensors",
        "preprocessing.json",
        "privacy.png",
        "privacy.svg",
        "privacy.pdf",
        "methods.tex",
        "methods.bib",
        "price.json",
        "price_check.py",
        "statement.html",
        "statement.pdf",
    }
    assert f"{100 * (winner.score or 0):.1f} %" in html
    assert not any(one.trial.id in html for one in tries)
    assert (
        "The price covers the winner alone: do not pass on the other tries"
        in (folder.root / "curator" / "report.html").read_text()
    )

    before, results = ledger.statement("digits").entries, sorted(folder.trials_folder.glob("*/result.json"))
    stamps = [path.stat().st_mtime_ns for path in results]
    assert folder_of(again := program(*SELECTION)) == folder
    assert "nothing more is run or charged" in again.stdout
    assert [path.stat().st_mtime_ns for path in results] == stamps
    assert ledger.statement("digits").entries == before
    refused = program(*SELECTION, "hydra.sweeper.retry=failed")
    assert refused.returncode == 2
    assert "never repeated" in refused.stderr


@pytest.mark.parametrize("line", HIDING, ids=lambda line: line[len(GRID)])
def test_every_rule_that_hides_losers_runs_what_its_event_says(
    place: Callable[..., Place], line: Sequence[str]
) -> None:
    here = place(line)
    assert kind_of_search(here.plan) is SecretDraw
    log = here.admit()
    work(log, dict.fromkeys(range(len(log.stored.draw.tries)), 0.7))
    assert [entry.kind for entry in here.ledger.statement("digits").entries] == ["open", *ONCE]
    assert released(here)


def test_the_winner_of_the_grid_is_released_as_that_of_as_many_tries_as_points(place: Callable[..., Place]) -> None:
    here = place(GRID_WINNER)
    log = here.admit()
    assert log.stored.draw.tries == (0, 1, 2, 3)
    work(log, {0: 0.3, 1: 0.8, 2: None, 3: 0.4})
    assert SearchOutcome.read(here.folder.outcome_path) == SearchOutcome(attempt=1, winner=1)
    page = released(here)["report.html"].decode()
    assert "Every point is tried once; the scores of all but the winner are secret." in page
    assert "The number of tries" not in page
    assert "30.0 %" not in page


def test_a_try_that_died_failed_or_diverged_is_never_made_again(place: Callable[..., Place]) -> None:
    here = place(SELECTION)
    log = here.plant(Draw(tries=(0, 1, 2, 3)))
    assert work(log, {0: None, 1: "failed", 2: "diverged", 3: 0.2}) == [0, 1, 2, 3]
    entries = here.ledger.statement("digits").entries
    again = here.admit()
    assert work(again, {}) == []
    where = again.states_of_runs()
    assert [len(kind) for kind in (where.finished, where.failed, where.killed, where.fresh)] == [2, 1, 1, 0]
    assert SearchOutcome.read(here.folder.outcome_path) == SearchOutcome(attempt=1, winner=3)
    assert here.ledger.statement("digits").entries == entries


def test_a_try_whose_folder_was_deleted_is_not_made_again(place: Callable[..., Place]) -> None:
    """Deleting a folder to have its try repeated would be choosing among tries by their scores."""
    here = place(SELECTION)
    log = here.plant(Draw(tries=(0, 1, 2)))
    first = log.drawn_tries_in_current_state()[0].trial
    receipts = log.start_and_issue_receipts([first])
    receipts[0].write(here.folder.trial_folder(first.id))
    Receipt.claim(here.folder.trial_folder(first.id), here.folder.private_store, plan=here.plan.id, trial=first.id)
    result_of(first, 0.9).write(here.folder.trial_folder(first.id))
    log.record_ended_attempts()
    shutil.rmtree(here.folder.trial_folder(first.id))
    with pytest.raises(BadInput, match=f"does not show that trial {first.id} began"):
        here.admit()


def test_the_search_goes_on_with_its_draw_after_kill_minus_nine(
    program: Program, place: Callable[..., Place], environment: dict[str, str], tmp_path: Path
) -> None:
    line = [*SELECTION, "steps=1000", "privacy.noise_multiplier=60"]
    here = place(line)
    here.plant(Draw(tries=(2, 0, 2, 1)))
    stored = here.folder.draw_path.read_bytes()
    before = here.ledger.statement("digits").entries
    with Run(line, tmp_path, environment, module="sweeper") as process:
        strike_when(lambda: claims(here.folder) in ((2, 1), (3, 2)), process, signal.SIGKILL)
    stamps = {path: path.stat().st_mtime_ns for path in here.folder.trials_folder.glob("*/result.json")}
    with pytest.raises(BadInput, match="to be finished"):
        write_release(here.folder.root, here.ledger)
    done = program(*line)
    assert done.returncode == 4
    assert "1 of 4 tries failed or were killed: they score worst" in done.stderr
    assert claims(here.folder) == (4, 3)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert here.folder.draw_path.read_bytes() == stored
    after = here.ledger.statement("digits").entries
    heard = [entry for entry in after[len(before) :] if entry.kind != Fingerprint.kind]
    assert [entry.kind for entry in heard] == [Launched.kind] * 2, "of two more launches, but not of its end"
    tries = here.search.states_of_tries(here.admit().stored)
    scores = [one.score for one in tries]
    assert scores.count(None) == 1
    outcome = SearchOutcome.read(here.folder.outcome_path)
    assert outcome is not None
    assert outcome.winner == max(range(4), key=lambda place: -1.0 if scores[place] is None else scores[place])
    assert len({one.trial.id for one in tries}) == 4, "two tries of one point are two runs"


def claims(folder: SweepFolder) -> tuple[int, int]:
    """How many tries have begun, and how many have a result."""
    return len(list(folder.trials_folder.glob("*/claim-1"))), len(list(folder.trials_folder.glob("*/result.json")))


def test_a_deleted_folder_is_another_charge_until_none_fits(place: Callable[..., Place]) -> None:
    here = place(SELECTION)
    price = here.priced.quote.epsilon
    work(here.admit(), dict.fromkeys(range(99), 0.5))
    fits = int(24 / price)
    for searches in range(2, fits + 1):
        shutil.rmtree(here.folder.root)
        for retry in (Retry.PAID, Retry.NONE):
            with pytest.raises(BadInput, match=r"another search is not paid for\. --again makes one"):
                here.admit(retry)
        log = here.admit()
        assert log.stored.attempt == log.receipt.attempt == searches
        assert reserved_amounts(here.ledger.statement("digits"))[0] == pytest.approx(searches * price)
    assert fits >= 2
    shutil.rmtree(here.folder.root)
    with pytest.raises(BudgetRefused):
        here.admit()
    assert not here.folder.draw_path.exists()


def test_a_lost_draw_is_not_replaced_by_the_results_of_its_search(place: Callable[..., Place]) -> None:
    """A second search may try the same points in the same places; what the first one found is not its own."""
    here = place(SELECTION)
    work(here.plant(Draw(tries=(0, 1, 2))), {0: 0.9, 1: 0.8, 2: 0.9})
    here.folder.draw_path.unlink()
    second = here.plant(Draw(tries=(0, 1, 2)))
    assert second.stored.attempt == 2
    with pytest.raises(BadInput, match="to be finished"):
        write_release(here.folder.root, here.ledger)
    assert work(second, {0: 0.3, 1: 0.4, 2: None}) == [0, 1, 2]
    assert SearchOutcome.read(here.folder.outcome_path) == SearchOutcome(attempt=2, winner=1)
    assert b"40.0 %" in released(here)["report.html"]


def test_the_first_try_that_reaches_the_threshold_wins_and_ends_the_search(place: Callable[..., Place]) -> None:
    here = place(THRESHOLD)
    log = here.plant(Draw(tries=(0, 1, 2, 3), threshold=0.8))
    assert work(log, {0: 0.79, 1: 0.8, 2: 0.99, 3: 0.99}) == [0, 1]
    assert SearchOutcome.read(here.folder.outcome_path) == SearchOutcome(attempt=1, winner=1)
    assert log.states_of_runs().fresh == ()
    assert work(here.admit(), {}) == []
    assert b"80.0 %" in released(here)["report.html"]


def test_a_try_that_was_interrupted_beyond_the_winner_waits_for_nothing(place: Callable[..., Place]) -> None:
    here = place(THRESHOLD)
    log = here.plant(Draw(tries=(0, 1), threshold=0.8))
    first, second = (one.trial for one in log.drawn_tries_in_current_state())
    for trial in (first, second):
        (receipt,), folder = log.start_and_issue_receipts([trial]), here.folder.trial_folder(trial.id)
        receipt.write(folder)
        Receipt.claim(folder, here.folder.private_store, plan=here.plan.id, trial=trial.id)
        replace(receipt, resume=1).write(folder)
    assert log.states_of_runs().interrupted == (first, second)
    result_of(first, 0.9).write(here.folder.trial_folder(first.id))
    log.record_ended_attempts()
    assert SearchOutcome.read(here.folder.outcome_path) == SearchOutcome(attempt=1, winner=0)
    states = here.admit().states_of_runs()
    assert (states.finished, states.interrupted) == ((first,), ())
    assert log.start_and_issue_receipts([second]) == ()


def test_a_threshold_that_no_try_reaches_has_no_winner(place: Callable[..., Place]) -> None:
    here = place(THRESHOLD)
    work(here.plant(Draw(tries=(0, 1), threshold=0.8)), {0: 0.7, 1: None})
    assert SearchOutcome.read(here.folder.outcome_path) == SearchOutcome(attempt=1, winner=None)
    assert b"70.0" not in released(here)["report.html"]


NOISY = (*GRID, "tuning=noisy_max")


def test_a_noisy_maximum_compares_counts_with_the_noise_of_its_draw_and_shows_no_score(
    place: Callable[..., Place],
) -> None:
    here = place(NOISY)
    assert kind_of_search(here.plan) is SecretDraw
    assert here.plan.trials[0].event.validation is not None, "each count has a noise of its own too"
    honest = here.admit().stored.draw
    assert (honest.tries, len(honest.handicaps)) == ((0, 1, 2, 3), 4)
    log = here.plant(Draw(tries=(0, 1, 2, 3), handicaps=(0.5, -9.0, 4.0, 30.0)))
    work(log, {0: 0.31, 1: 0.83, 2: 0.81, 3: None}, records=300)
    assert SearchOutcome.read(here.folder.outcome_path) == SearchOutcome(attempt=1, winner=2), (
        "243 + 4 are more than 249 - 9"
    )
    out = released(here)
    page = out["report.html"].decode()
    assert "compared under Gumbel noise of scale 2." in " ".join(page.split())
    for score in ("31.0 %", "83.0 %", "81.0 %"):
        assert score not in page
    assert not any(b"0.81" in content or b"0.83" in content for name, content in out.items() if name.endswith("json"))
    assert "ran nothing but its draw" in verify_sweep_folder_and_describe(here.folder.root, here.ledger)


def test_two_searches_of_one_plan_draw_apart(place: Callable[..., Place], tmp_path: Path) -> None:
    """Whoever could compute a draw from the plan could subtract its noise."""
    first, second = (place(NOISY, root=name, own=Ledger(tmp_path / f"{name}.sqlite")) for name in ("a", "b"))
    assert first.plan.id == second.plan.id
    assert first.admit().stored.draw.handicaps != second.admit().stored.draw.handicaps


def test_a_noisy_maximum_from_command_to_release(program: Program, ledger: Ledger) -> None:
    folder = folder_of(program(*NOISY))
    plan, stored = Plan.read(folder.plan_path), StoredDraw.read(folder.draw_path)
    assert stored is not None
    tries = SecretDraw(plan=plan, folder=folder).states_of_tries(stored)
    counts = [one.noisy_right_predictions for one in tries]
    assert all(count is not None and 0 < count < 500 for count in counts)
    sums = [count + noise for count, noise in zip(counts, stored.draw.handicaps, strict=True) if count is not None]
    outcome = SearchOutcome.read(folder.outcome_path)
    assert outcome is not None
    assert outcome.winner == sums.index(max(sums))
    assert [entry.kind for entry in ledger.statement("digits").entries] == ["open", "data", *ONCE]
    page = write_release(folder.root, ledger)
    everything = b"".join(path.read_bytes() for path in page.parent.iterdir())
    for one in tries:
        assert one.result is not None
        assert one.result.score_value is not None
        assert f"{100 * one.result.score_value:.1f} %".encode() not in everything
        assert repr(one.result.score_value).encode() not in everything
        assert repr(one.noisy_right_predictions).encode() not in everything


@pytest.mark.parametrize("line", [GRID, *HIDING], ids=lambda line: line[-1])
def test_a_rule_is_known_to_run_before_there_is_a_plan(compose_priced: Compose, line: Sequence[str]) -> None:
    priced = compose_priced(line)
    assert priced.rule.runs(priced.plan.event, priced.plan.priced_events)


def test_a_draw_of_another_ledger_or_plan_is_refused_before_the_charge(
    place: Callable[..., Place], tmp_path: Path
) -> None:
    here = place(SELECTION)
    work(here.admit(), dict.fromkeys(range(99), 0.5))
    elsewhere = Place(priced=here.priced, folder=here.folder, ledger=Ledger(tmp_path / "other.sqlite"))
    with pytest.raises(BadInput, match="Use the ledger that it was run with"):
        elsewhere.admit()
    here.folder.draw_path.unlink()
    with pytest.raises(BadInput, match="Use the ledger that it was run with"):
        elsewhere.admit()
    assert elsewhere.ledger.statement("digits").charges == ()
    another = place(POISSON)
    stranger = Place(priced=another.priced, folder=here.folder, ledger=here.ledger)
    StoredDraw(plan=here.plan.id, attempt=1, draw=Draw(tries=(0,))).write(here.folder.draw_path)
    with pytest.raises(BadInput, match="it is one of plan"):
        stranger.admit()
    assert len(here.ledger.statement("digits").charges) == 1


def test_a_crash_before_the_draw_was_stored_is_not_charged_twice(place: Callable[..., Place]) -> None:
    """Between the charge and the draw nothing ran and nobody saw a draw, so the charge is still good."""
    here = place(SELECTION)
    here.ledger.open_account("digits", here.plan.budget)
    plan = here.plan
    here.ledger.charge(
        "digits",
        plan=plan.id,
        trials=[plan.id],
        rule=plan.rule,
        points=plan.priced_events,
        delta=plan.delta,
        opinions=here.priced.panel,
        record={},
    )
    assert here.admit().stored.attempt == 1
    assert len(here.ledger.statement("digits").charges) == 1


def test_weights_of_tries_start_from_secrets_and_those_of_points_do_not(place: Callable[..., Place]) -> None:
    """Tries whose weights anybody could compute from their place in the draw would not be alike."""
    here = place(SELECTION)
    point, one = here.plan.trials[0], here.plant(Draw(tries=(0,))).drawn_tries_in_current_state()[0].trial
    assert identity_for_initial_weights(point) == point.id
    assert len({identity_for_initial_weights(one), identity_for_initial_weights(one), one.id}) == 3


def test_a_search_takes_about_as_long_as_the_tries_that_are_expected(compose_priced: Compose) -> None:
    searches = [compose_priced(line).plan for line in (GRID, SELECTION)]
    every, three = (
        estimated_wall_seconds_of_plan(
            plan, {timing_key_of_config(trial.config): Cost(step=0.5) for trial in plan.trials}, workers=1
        )
        for plan in searches
    )
    assert every == pytest.approx(4 * 3 * 0.5)
    assert three == pytest.approx(3 * 3 * 0.5)


def test_the_draw_can_be_read_by_its_owner_alone_from_its_creation(place: Callable[..., Place]) -> None:
    here, mask = place(SELECTION), os.umask(0)
    try:
        here.admit()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(here.folder.draw_path.stat().st_mode) == 0o600
    stored = StoredDraw.read(here.folder.draw_path)
    assert stored is not None
    with pytest.raises(BadInput, match="never made again"):
        stored.write(here.folder.draw_path)
