"""Sessions that are trained at once: each keeps its own record, and what befalls one befalls no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import are_same_events, from_json
from dpsweep.accounting.ledger.charges import digest_of_declared_events
from dpsweep.accounting.ledger.permit import PrivateStore, Receipt
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder, TrialPlace
from dpsweep.accounting.records.taken_steps import can_resume, steps_spent
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.sweeper.job.block_job import run_block
from dpsweep.sweeper.trial.run import train_sessions_and_write_results
from dpsweep.sweeper.trial.session import Machine, TrialSession, check_subsample_sharing_was_charged
from tests.jobs import job_config
from tests.places import NONCE, both, claimed, launched
from tests.randomized import TRAINS

pytestmark = TRAINS

Compose = Callable[[Sequence[str]], PricedPlan]

MACHINE = Machine(device="cpu", threads=1, chunk=None, data=None)
LINE = ("dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "steps=6", "privacy.noise_multiplier=3")
GRID = ("trainer=dpsgd", "trainer.lr=0.5,1,2", "trainer.clip_norm=1")


@pytest.fixture
def trials(compose_priced: Compose) -> tuple[Trial, ...]:
    return compose_priced([*LINE, *GRID, "score.noise_std=3", "checkpoint.every=2"]).plan.trials


def sessions(
    trials: Sequence[Trial],
    root: Path,
    resume: int = 0,
    charges: Sequence[str] = (),
    plan: str = "p",
    store: PrivateStore | None = None,
) -> list[TrialSession]:
    found = []
    for place, trial in enumerate(trials):
        charge = charges[place] if charges else "c"
        paper = Receipt(
            account="digits", plan=plan, trial=trial.id, attempt=1, charge=charge, entries=2, head="h", launch=NONCE
        )
        receipt = replace(paper, resume=resume, accesses=digest_of_declared_events([trial.event]))
        folder = root / trial.id
        folder.mkdir(parents=True, exist_ok=True)
        receipt.write(folder)
        found.append(
            TrialSession(
                trial=trial,
                claimed=claimed(trial, receipt),
                place=both(folder)
                if store is None
                else TrialPlace(files=folder, record=store.trial_record_folder(folder.name)),
            )
        )
    return found


def results(trials: Sequence[Trial], root: Path) -> list[TrialResult]:
    found = [TrialResult.read(root / trial.id) for trial in trials]
    assert all(result is not None for result in found)
    return [result for result in found if result is not None]


def stopping_after(steps: int) -> Callable[[], bool]:
    """True from so many questions on; one is asked after every step."""
    asked = 0

    def ask() -> bool:
        nonlocal asked
        asked += 1
        return asked >= steps

    return ask


def test_each_trial_has_a_record_of_its_own(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    group = sessions(trials, tmp_path)
    for session in group:
        with session.write_log_to_trial_file():
            pass
    with group[0].write_log_to_trial_file(), group[1].write_log_to_trial_file(), group[2].write_log_to_trial_file():
        train_sessions_and_write_results(group, MACHINE)
    found = results(trials, tmp_path)
    assert {result.status for result in found} == {Status.FINISHED}
    assert len({str(result.score) for result in found}) == 3
    for trial, result in zip(trials, found, strict=True):
        assert result.steps == 6
        log = (tmp_path / trial.id / "train.log").read_text()
        assert f"trial {trial.id}, attempt 1" in log
        assert "trained with 2 others" in log
        assert all(other.id not in log for other in trials if other is not trial)
        assert (tmp_path / trial.id / "model.safetensors").exists()
        assert (tmp_path / trial.id / "steps-1").read_text().startswith("2 2\n2 4\n2 6\n")


def test_a_stop_is_kept_for_each_and_another_session_ends_them(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    train_sessions_and_write_results(sessions(trials, tmp_path), MACHINE, stopping_after(3))
    for trial in trials:
        assert TrialResult.read(tmp_path / trial.id) is None
        assert can_resume(both(tmp_path / trial.id), trial, 1)
        assert steps_spent(both(tmp_path / trial.id), trial, 1) == 3
    train_sessions_and_write_results(sessions(trials, tmp_path, resume=1), MACHINE)
    assert {result.status for result in results(trials, tmp_path)} == {Status.FINISHED}


def test_those_at_different_steps_go_on_in_turns(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    train_sessions_and_write_results(sessions(trials[:1], tmp_path), MACHINE, stopping_after(1))
    train_sessions_and_write_results(sessions(trials[1:], tmp_path), MACHINE, stopping_after(3))
    train_sessions_and_write_results(sessions(trials, tmp_path, resume=1), MACHINE)
    found = results(trials, tmp_path)
    assert {(result.status, result.steps) for result in found} == {(Status.FINISHED, 6)}


def test_one_that_cannot_go_on_takes_no_other_along(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    train_sessions_and_write_results(sessions(trials, tmp_path), MACHINE, stopping_after(3))
    path = tmp_path / trials[1].id / "checkpoint-1"
    path.write_bytes(path.read_bytes()[:-2])
    train_sessions_and_write_results(sessions(trials, tmp_path, resume=1), MACHINE)
    found = results(trials, tmp_path)
    assert [result.status for result in found] == [Status.FINISHED, Status.FAILED, Status.FINISHED]
    assert found[1].error is not None
    assert found[1].error.startswith("ContractBroken: Expected ")


def test_one_whose_charge_was_another_fails_alone(trials: tuple[Trial, ...], tmp_path: Path) -> None:
    ran, charged = trials[1].event.training, trials[1].event.validation
    assert charged is not None
    other = replace(trials[1], event=replace(trials[1].event, training=ran, validation=None))
    group = (trials[0], other, trials[2])
    train_sessions_and_write_results(sessions(group, tmp_path), MACHINE)
    found = results(group, tmp_path)
    assert [result.status for result in found] == [Status.FINISHED, Status.FAILED, Status.FINISHED]
    assert found[1].error is not None
    assert "The run differs from its charge" in found[1].error
    assert found[1].event is None


@pytest.fixture
def shared(compose_priced: Compose) -> tuple[Trial, ...]:
    return compose_priced([*LINE, *GRID, "score.noise_std=3", "subsample=shared"]).plan.trials


@pytest.mark.parametrize("engine", ["auto", "opacus"])
def test_runs_that_were_charged_for_the_same_subsamples_have_them(
    compose_priced: Compose, tmp_path: Path, engine: str
) -> None:
    """All batches alike, all noise and scores not."""
    trials = compose_priced([*LINE, *GRID, "score.noise_std=3", "subsample=shared", f"engine={engine}"]).plan.trials
    train_sessions_and_write_results(sessions(trials, tmp_path), MACHINE, shared=True)
    found = results(trials, tmp_path)
    assert {result.status for result in found} == {Status.FINISHED}
    assert len({str(result.curator["batch_sizes"]) for result in found}) == 1
    assert len({str(result.score) for result in found}) == 3
    for trial, result in zip(trials, found, strict=True):
        assert result.event is not None
        assert are_same_events(from_json(dict(result.event)), trial.event.training)


def test_runs_that_were_charged_alone_have_subsamples_of_their_own(shared: tuple[Trial, ...], tmp_path: Path) -> None:
    train_sessions_and_write_results(sessions(shared, tmp_path), MACHINE)
    sizes = {str(result.curator["batch_sizes"]) for result in results(shared, tmp_path)}
    assert len(sizes) == 3, "six batches of 700 hardly ever agree in three numbers"


def test_company_that_was_not_charged_for_is_refused() -> None:
    check_subsample_sharing_was_charged(1, shared=False)
    check_subsample_sharing_was_charged(1, shared=True)
    check_subsample_sharing_was_charged(7, shared=True)
    with pytest.raises(ContractBroken, match="7 runs had the same subsamples"):
        check_subsample_sharing_was_charged(7, shared=False)


def test_shared_runs_of_one_charge_never_go_on_apart(shared: tuple[Trial, ...], tmp_path: Path) -> None:
    train_sessions_and_write_results(sessions(shared[:1], tmp_path), MACHINE, stopping_after(1), shared=True)
    train_sessions_and_write_results(sessions(shared[1:], tmp_path), MACHINE, stopping_after(3), shared=True)
    train_sessions_and_write_results(sessions(shared, tmp_path, resume=1), MACHINE, shared=True)
    for result in results(shared, tmp_path):
        assert result.status is Status.FAILED
        assert result.error is not None
        assert "they must train together" in result.error


def test_shared_runs_of_two_charges_have_two_subsamples(shared: tuple[Trial, ...], tmp_path: Path) -> None:
    train_sessions_and_write_results(sessions(shared, tmp_path, charges=["c", "d", "d"]), MACHINE, shared=True)
    found = results(shared, tmp_path)
    assert {result.status for result in found} == {Status.FINISHED}
    sizes = [str(result.curator["batch_sizes"]) for result in found]
    assert sizes[0] != sizes[1] == sizes[2]


@pytest.fixture
def by_hand(compose_priced: Compose, tmp_path: Path) -> Iterator[tuple[SweepFolder, Plan, Callable[[int, int], None]]]:
    """A charged plan with shared subsamples, and its job as somebody would start it by hand: a part of so many."""
    plan = compose_priced([*LINE, *GRID, "score.noise_std=3", "subsample=shared"]).plan
    folder = SweepFolder(root=tmp_path / "sweep", store=launched(tmp_path / "private"))
    plan.write(folder.plan_path)

    def run(part: int, parts: int) -> None:
        words = [f"block='{plan.blocks[0].id}'", f"part={part}", f"parts={parts}"]
        words += [f"hydra.sweep.dir={folder.root}", "compute.device=cpu", f"store={folder.private_store.root}"]
        run_block(job_config(words, tmp_path))

    yield folder, plan, run
    HydraConfig.instance().cfg = None


def test_a_job_by_hand_divides_no_shared_block(by_hand: tuple[SweepFolder, Plan, Callable[[int, int], None]]) -> None:
    folder, plan, run = by_hand
    sessions(plan.trials, folder.trials_folder, plan=plan.id, store=folder.store)
    run(0, 3)
    found = results(plan.trials, folder.trials_folder)
    assert {result.status for result in found} == {Status.FINISHED}
    assert len({str(result.curator["batch_sizes"]) for result in found}) == 1


def test_shared_runs_that_got_their_receipts_late_never_train_on_the_charge_of_the_others(
    by_hand: tuple[SweepFolder, Plan, Callable[[int, int], None]],
) -> None:
    """Two subsamples under one charge would cost more than was charged."""
    folder, plan, run = by_hand
    sessions(plan.trials[:2], folder.trials_folder, plan=plan.id, store=folder.store)
    run(0, 1)
    assert {result.status for result in results(plan.trials[:2], folder.trials_folder)} == {Status.FINISHED}
    sessions(plan.trials[2:], folder.trials_folder, plan=plan.id, store=folder.store)
    with pytest.raises(ContractBroken, match="must train together"):
        run(0, 1)
    late = folder.trial_folder(plan.trials[2].id)
    assert not list(late.glob("claim-*"))
    assert not folder.trial_folder_and_private_record(late.name).record.exists()


def test_shared_runs_go_on_without_one_that_has_ended(
    by_hand: tuple[SweepFolder, Plan, Callable[[int, int], None]],
) -> None:
    """It had the same subsamples as long as it lasted."""
    folder, plan, run = by_hand
    begun = sessions(plan.trials, folder.trials_folder, plan=plan.id, store=folder.store)
    for session in begun:
        assert (
            Receipt.claim(session.place.files, folder.private_store, plan=plan.id, trial=session.trial.id) is not None
        )
    train_sessions_and_write_results(begun, MACHINE, stopping_after(2), shared=True)
    sessions(plan.trials[1:], folder.trials_folder, resume=1, plan=plan.id, store=folder.store)
    run(0, 1)
    found = results(plan.trials[1:], folder.trials_folder)
    assert {(result.status, result.steps) for result in found} == {(Status.FINISHED, 6)}
    sessions(plan.trials[:1], folder.trials_folder, resume=1, plan=plan.id, store=folder.store)
    with pytest.raises(ContractBroken, match="must train together"):
        run(0, 1)
