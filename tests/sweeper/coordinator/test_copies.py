"""One charge is trained once: copied, restored and edited folders, and lost or restored private stores."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, ContractBroken, NoReceipt, ReceiptUsed
from dpsweep.accounting.ledger.book import Ended, Launched, Released, ReleaseManifest
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.trial_result import RESULT_FILE, Status, TrialResult
from dpsweep.accounting.searches.folder_audit import verify_no_attempt_ran_twice, verify_sweep_folder_and_describe
from dpsweep.accounting.searches.stored_draw import SearchOutcome
from dpsweep.accounting.selection.interface import Draw
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.searches.admission import Retry
from dpsweep.sweeper.searches.interface import RunQueue
from tests.randomized import SEARCHES
from tests.sweeper.search_programs import (
    GRID,
    ONCE,
    POISSON,
    SELECTION,
    Place,
    Program,
    folder_of,
    result_of,
    work,
)

pytestmark = SEARCHES

Places = Callable[..., Place]


def begin(here: Place, retry: Retry = Retry.NONE) -> RunQueue:
    """The command up to its first job."""
    return here.begin(retry)


def hand_out(here: Place, started: RunQueue, trials: Sequence[Trial]) -> None:
    """Starts attempts and puts their receipts into the folder, which nobody claims yet."""
    for receipt in started.log.start_and_issue_receipts(trials):
        receipt.write(here.folder.trial_folder(receipt.trial))


def train(here: Place, trials: Sequence[Trial], fate: float | str | None = 0.5) -> list[str]:
    """A worker's part: claims what it can and returns that; a fate is a score, a status, or None for a death."""
    trained = []
    for trial in trials:
        files = here.folder.trial_folder(trial.id)
        try:
            receipt = Receipt.claim(files, here.folder.private_store, plan=here.plan.id, trial=trial.id)
        except NoReceipt:
            continue
        trained.append(trial.id)
        if fate is not None:
            result_of(trial, fate, receipt.attempt).write(files)
    return trained


def finish(here: Place, retry: Retry = Retry.NONE, fate: float | str | None = 0.5) -> list[str]:
    """The whole command, and what it trained."""
    started = begin(here, retry)
    hand_out(here, started, started.due)
    trained = train(here, started.due, fate)
    started.log.record_ended_attempts()
    return trained


def copied(here: Place, there: Place) -> Place:
    """The same folder at another path."""
    shutil.rmtree(there.folder.root, ignore_errors=True)
    shutil.copytree(here.folder.root, there.folder.root)
    return there


@pytest.fixture
def pair(place: Places) -> tuple[Place, Place]:
    """Two places on one ledger."""
    return place(GRID, root="a"), place(GRID, root="b")


def test_unused_receipts_in_two_copies_are_trained_once(pair: tuple[Place, Place]) -> None:
    first, second = pair
    started = begin(first)
    hand_out(first, started, started.due)
    copied(first, second)
    assert len(finish(first)) == 4
    assert finish(second) == []
    started = begin(second)
    assert len(started.log.states_of_runs().killed) == 4, "they ended elsewhere, and their results are not here"
    assert started.due == ()


def test_a_receipt_is_void_once_another_copy_is_launched(pair: tuple[Place, Place]) -> None:
    """A queue may begin a job after its coordinator died."""
    first, second = pair
    started = begin(first)
    hand_out(first, started, started.due)
    copied(first, second)
    again = begin(second)
    hand_out(second, again, again.due)
    trial = started.due[0]
    with pytest.raises(NoReceipt, match="is void: the sweep was launched again since"):
        Receipt.claim(
            first.folder.trial_folder(trial.id), first.folder.private_store, plan=first.plan.id, trial=trial.id
        )
    assert len(train(second, again.due)) == 4


def test_two_copies_that_hold_one_valid_receipt_claim_it_once(pair: tuple[Place, Place]) -> None:
    first, second = pair
    started = begin(first)
    hand_out(first, started, started.due)
    copied(first, second)
    assert len(train(first, started.due[:2])) == 2
    trial = started.due[0]
    with pytest.raises(ReceiptUsed):
        Receipt.claim(
            second.folder.trial_folder(trial.id), second.folder.private_store, plan=second.plan.id, trial=trial.id
        )
    assert len(train(second, started.due)) == 2


@pytest.mark.parametrize("gone", [("claim-1", RESULT_FILE), ("claim-1", RESULT_FILE, "receipt.json")], ids=str)
def test_a_trial_that_ended_is_never_fresh_again(place: Places, gone: Sequence[str]) -> None:
    here = place(GRID)
    finish(here)
    for trial in here.plan.trials:
        for name in gone:
            (here.folder.trial_folder(trial.id) / name).unlink()
    assert finish(here) == []
    before = len(here.ledger.statement("digits").charges)
    assert len(finish(here, Retry.KILLED)) == 4
    assert len(here.ledger.statement("digits").charges) == before + 1, "another training is another charge"


def test_a_folder_that_was_restored_to_before_its_claims_frees_none(place: Places, tmp_path: Path) -> None:
    """The coordinator was killed too, so that nothing was settled: the private store knows what began."""
    here = place(GRID)
    started = begin(here)
    hand_out(here, started, started.due)
    shutil.copytree(here.folder.root, tmp_path / "backup")
    assert len(train(here, started.due[:3], None)) == 3
    shutil.rmtree(here.folder.root)
    shutil.copytree(tmp_path / "backup", here.folder.root)
    assert finish(here) == [started.due[3].id], "one was never claimed"


@pytest.mark.parametrize("restored", [False, True], ids=["lost", "restored"])
def test_without_the_newest_private_store_nothing_goes_on(place: Places, tmp_path: Path, restored: bool) -> None:
    here = place(GRID)
    started = begin(here)
    hand_out(here, started, started.due)
    train(here, started.due[:1])
    store = here.folder.private_store.root
    shutil.copytree(store, tmp_path / "backup")
    hand_out(here, begin(here), ())
    shutil.rmtree(store)
    if restored:
        shutil.copytree(tmp_path / "backup", store)
    assert finish(here) == []
    where = begin(here).log.states_of_runs()
    assert (len(where.finished), len(where.killed)) == (1, 3)


def test_a_job_without_the_private_store_refuses(place: Places) -> None:
    here = place(GRID)
    started = begin(here)
    hand_out(here, started, started.due)
    shutil.rmtree(here.folder.private_store.root)
    with pytest.raises(NoReceipt, match=r"private store .* without it nothing trains"):
        Receipt.claim(
            here.folder.trial_folder(started.due[0].id),
            here.folder.private_store,
            plan=here.plan.id,
            trial=started.due[0].id,
        )


def test_a_paid_folder_that_is_put_back_is_not_overwritten(pair: tuple[Place, Place], tmp_path: Path) -> None:
    here, _ = pair
    finish(here)
    shutil.move(here.folder.root, tmp_path / "kept")
    assert len(finish(here, Retry.KILLED, fate=0.6)) == 4
    shutil.rmtree(here.folder.root)
    shutil.copytree(tmp_path / "kept", here.folder.root)
    results = {path: path.read_bytes() for path in here.folder.trials_folder.glob("*/result.json")}
    for retry in (Retry.KILLED, Retry.NONE, Retry.FAILED):
        with pytest.raises(BadInput, match=r"which is paid, and the ledger knows attempt 2\. Nothing was overwritten"):
            begin(here, retry)
    assert {path: path.read_bytes() for path in here.folder.trials_folder.glob("*/result.json")} == results
    assert len(here.ledger.statement("digits").charges) == 2


def edited(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_verify_and_release_find_an_edited_score(place: Places) -> None:
    here = place(GRID)
    finish(here)
    verify_sweep_folder_and_describe(here.folder.root, here.ledger)
    path = here.folder.trial_folder(here.plan.trials[0].id) / RESULT_FILE
    edited(path, score={"value": 0.99, "low": 0.9, "high": 1.0})
    for check in (verify_sweep_folder_and_describe, write_release):
        with pytest.raises(ContractBroken, match="is not the one that its attempt ended with"):
            check(here.folder.root, here.ledger)
    assert not here.folder.release_folder.exists()


@pytest.mark.parametrize("name", ["receipt.json", RESULT_FILE])
def test_verify_finds_the_papers_of_another_trial(place: Places, name: str) -> None:
    here = place(GRID)
    finish(here)
    one, other = (here.folder.trial_folder(trial.id) for trial in here.plan.trials[:2])
    shutil.copy(other / name, one / name)
    with pytest.raises(ContractBroken, match="is one of another trial"):
        verify_sweep_folder_and_describe(here.folder.root, here.ledger)


def test_verify_compares_copies_with_one_another(pair: tuple[Place, Place]) -> None:
    first, second = pair
    finish(first)
    copied(first, second)
    verify_no_attempt_ran_twice([first.folder.root, second.folder.root])
    edited(second.folder.trial_folder(first.plan.trials[0].id) / RESULT_FILE, salt="another")
    with pytest.raises(ContractBroken, match=r"on one charge in .*: result of attempt 1 differs"):
        verify_no_attempt_ran_twice([first.folder.root, second.folder.root])


def test_a_settle_line_tells_nothing_of_a_score_to_who_has_the_ledger_alone(place: Places) -> None:
    here = place(GRID)
    finish(here)
    ends = [entry.body for entry in here.ledger.statement("digits").entries if entry.kind == Ended.kind]
    digests = {body["result"] for body in ends}
    assert len(digests) == 4
    for trial in here.plan.trials:
        result = TrialResult.read(here.folder.trial_folder(trial.id))
        assert result is not None
        assert len(result.salt) == 32
        replace(result, salt="").write(here.folder.trial_folder(trial.id))
        assert TrialResult.digest_of_result_file(here.folder.trial_folder(trial.id)) not in digests


FATES: Mapping[int, float] = {0: 0.5, 1: 0.4, 2: 0.7}


def test_one_of_two_copies_of_a_search_goes_on(place: Places) -> None:
    first, second = place(SELECTION, root="a"), place(SELECTION, root="b")
    first.plant(Draw(tries=(0, 1, 2)))
    copied(first, second)
    assert work(first.admit(), FATES) == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(BadInput, match=r"it does not show that trial \w+ began. It is an older copy"):
            second.admit()


def test_a_search_that_is_restored_is_not_made_again(place: Places, tmp_path: Path) -> None:
    here = place(SELECTION)
    log = here.plant(Draw(tries=(0, 1, 2)))
    shutil.copytree(here.folder.root, tmp_path / "backup")
    work(log, FATES)
    shutil.rmtree(here.folder.root)
    shutil.copytree(tmp_path / "backup", here.folder.root)
    with pytest.raises(BadInput, match="nothing trains"):
        here.admit()
    assert [entry.kind for entry in here.ledger.statement("digits").entries if entry.plan] == [*ONCE, Launched.kind]


@pytest.mark.parametrize("name", ["claim-1", RESULT_FILE, "all"])
def test_a_try_that_was_taken_away_or_edited_stops_its_search(place: Places, name: str) -> None:
    here = place(SELECTION)
    log = here.plant(Draw(tries=(0, 1)))
    trial = log.drawn_tries_in_current_state()[0].trial
    (receipt,) = log.start_and_issue_receipts([trial])
    files = here.folder.trial_folder(trial.id)
    receipt.write(files)
    Receipt.claim(files, here.folder.private_store, plan=here.plan.id, trial=trial.id)
    result_of(trial, 0.2).write(files)
    log.record_ended_attempts()
    shutil.rmtree(files) if name == "all" else (files / name).unlink()
    with pytest.raises(BadInput, match="nothing trains"):
        here.admit()


def test_without_its_private_store_a_search_goes_on_nowhere(place: Places) -> None:
    here = place(SELECTION)
    here.plant(Draw(tries=(0, 1)))
    shutil.rmtree(here.folder.private_store.root)
    with pytest.raises(BadInput, match=r"private store .* it is lost, or an older copy of it, so nothing trains"):
        here.admit()


def test_a_search_that_is_over_is_idle_without_its_private_store(place: Places) -> None:
    here = place(SELECTION)
    work(here.plant(Draw(tries=(0, 1))), FATES)
    before = here.ledger.statement("digits").entries
    shutil.rmtree(here.folder.private_store.root)
    assert work(here.admit(), {}) == []
    assert here.ledger.statement("digits").entries == before


def test_a_charge_has_one_winner(place: Places) -> None:
    """Two copies, of which somebody exchanged the outcome and the store that knows better."""
    first, second = place(SELECTION, root="a"), place(SELECTION, root="b")
    work(first.plant(Draw(tries=(0, 1, 2))), FATES)
    copied(first, second)
    write_release(first.folder.root, first.ledger)
    write_release(second.folder.root, second.ledger)
    SearchOutcome(attempt=1, winner=1).write(second.folder.outcome_path)
    with pytest.raises(ContractBroken, match="names another winner"):
        write_release(second.folder.root, second.ledger)
    shutil.rmtree(second.folder.private_store.root)
    with pytest.raises(BadInput, match="its charge pays for one winner, and this folder has another one"):
        write_release(second.folder.root, second.ledger)
    kinds = [entry.kind for entry in first.ledger.statement("digits").entries]
    assert kinds.count(Released.kind) == 1
    verify_sweep_folder_and_describe(first.folder.root, first.ledger)
    (first.folder.release_folder / "config.yaml").write_text("lr: 1\n")
    with pytest.raises(ContractBroken, match="is not the one that was released by the ledger"):
        verify_sweep_folder_and_describe(first.folder.root, first.ledger)


@pytest.mark.parametrize(
    "line", [SELECTION, pytest.param(POISSON, marks=pytest.mark.long)], ids=["negative_binomial", "poisson"]
)
def test_the_ledger_does_not_tell_the_number_of_tries(place: Places, line: Sequence[str]) -> None:
    """Kinds, order and number of the lines are those of any other number of tries; none comes before the release."""
    heard = []
    for many in (0, 2, 30):
        here = place((*line, f"trainer.lr=2,{8 + many}"), root=f"{many}")
        work(here.plant(Draw(tries=((0, 1, 2) * 10)[:many])), fates_of(many))
        write_release(here.folder.root, here.ledger)
        heard.append([entry.kind for entry in here.ledger.statement("digits").entries if entry.plan == here.plan.id])
    assert heard[0] == heard[1] == heard[2] == [*ONCE, Launched.kind, Released.kind, ReleaseManifest.kind]


def fates_of(many: int) -> Mapping[int, float]:
    return {place: place / 40 for place in range(many)}


def test_statuses_of_results_that_are_there_are_kept(pair: tuple[Place, Place]) -> None:
    """A copy that is whole needs nothing."""
    first, second = pair
    finish(first, fate=Status.DIVERGED.value)
    copied(first, second)
    assert finish(second) == []
    assert len(begin(second).log.states_of_runs().finished) == 4


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("words", [(), ("tuning=private_selection", "tuning.mean=2")], ids=["points", "search"])
def test_folders_are_closed_to_others_and_so_are_files_with_scores(program: Program, words: Sequence[str]) -> None:
    folder = folder_of(program(*GRID, *words))
    modes = {path.relative_to(folder.root): stat.S_IMODE(path.stat().st_mode) for path in folder.root.rglob("*")}
    assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700
    secret = ("result.json", "draw.json", "outcome.json", "study.log", "model.safetensors")
    files = {path: mode for path, mode in modes.items() if path.name in secret or path.parts[0] == "curator"}
    assert {"report.html", "report.json", *secret} - {"draw.json", "outcome.json"} <= {path.name for path in files}
    assert {mode for path, mode in files.items() if (folder.root / path).is_file()} == {0o600}
    (store,) = Path(folder.root.parents[2]).glob("*.private")
    for path in (store, *store.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_a_launcher_of_other_machines_needs_a_private_store_that_they_share(program: Program, ledger: Ledger) -> None:
    done = program(*GRID, "hydra/launcher=submitit_slurm")
    assert done.returncode == 2
    assert "Expected DPSWEEP_PRIVATE to name a folder that all machines of this sweep share" in done.stderr
    assert ledger.account_names() == ()
