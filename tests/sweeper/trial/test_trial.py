"""Inside a job: what ran is held against what was charged, and every end is a result."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import torch
from hydra.core.hydra_config import HydraConfig

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    are_same_events,
    compose,
    from_json,
    mechanisms_with_counts,
    poisson_gaussian,
    repeat,
    with_rounded_noise,
)
from dpsweep.accounting.ledger.charges import digest_of_declared_events
from dpsweep.accounting.ledger.permit import Receipt, claim_path, read_checkpoint_file
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.taken_steps import can_resume, steps_spent
from dpsweep.accounting.records.trial_result import MODEL_FILE, Status, TrialResult
from dpsweep.accounting.stored_names.stored_classes import fields_without_class_name, tag_or_path_of_class
from dpsweep.sweeper.job.block_job import run_block
from dpsweep.sweeper.job.locks import training_lock
from dpsweep.sweeper.trial.build import make_model, make_streams
from dpsweep.sweeper.trial.run import train_sessions_and_write_results
from dpsweep.sweeper.trial.session import (
    Machine,
    TrialSession,
    check_realised_dp_event_was_charged,
    check_score_dp_event_was_charged,
)
from dpsweep.trainers.training import run_records
from tests.jobs import job_config
from tests.places import NONCE, both, claimed, launched
from tests.randomized import TRAINS
from tests.waiting import wait

pytestmark = TRAINS

Compose = Callable[[Sequence[str]], PricedPlan]

STEP = poisson_gaussian(sample_rate=0.1, noise_multiplier=1.0)
MACHINE = Machine(device="cpu", threads=1, chunk=None, data=None)


@pytest.mark.parametrize(
    "realised",
    [
        repeat(STEP, 9),
        repeat(STEP, 11),
        repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=0.99), 10),
        repeat(poisson_gaussian(sample_rate=0.11, noise_multiplier=1.0), 10),
        compose([repeat(STEP, 9), poisson_gaussian(sample_rate=0.1, noise_multiplier=2.0)]),
    ],
    ids=repr,
)
def test_anything_else_than_what_was_charged_is_refused(realised: DpEvent) -> None:
    with pytest.raises(ContractBroken, match="The run differs from its charge"):
        check_realised_dp_event_was_charged(realised, repeat(STEP, 10), least=10)


def test_what_was_charged_is_accepted_and_a_diverged_run_may_stop_early() -> None:
    check_realised_dp_event_was_charged(compose([STEP] * 10), repeat(STEP, 10), least=10)
    check_realised_dp_event_was_charged(repeat(STEP, 3), repeat(STEP, 10), least=0)
    with pytest.raises(ContractBroken):
        check_realised_dp_event_was_charged(repeat(STEP, 11), repeat(STEP, 10), least=0)


def test_a_run_takes_all_of_its_steps_and_of_the_spare_ones_what_it_lost() -> None:
    for count in (10, 11, 14):
        check_realised_dp_event_was_charged(repeat(STEP, count), repeat(STEP, 14), least=10)
    for count in (9, 15):
        with pytest.raises(ContractBroken):
            check_realised_dp_event_was_charged(repeat(STEP, count), repeat(STEP, 14), least=10)


def test_no_other_score_is_measured_than_was_charged() -> None:
    check_score_dp_event_was_charged(STEP, STEP)
    check_score_dp_event_was_charged(None, None)
    for measured, charged in ((STEP, None), (None, STEP), (repeat(STEP, 2), STEP)):
        with pytest.raises(ContractBroken, match="The score differs from its charge"):
            check_score_dp_event_was_charged(measured, charged)


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"threads": "all"}, {"chunk": -1}, {"chunk": 2.5}], ids=str)
def test_a_machine_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="to be null or an integer"):
        replace(MACHINE, **wrong)  # type: ignore[arg-type]


LINE = ("dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "trainer=dpnsgd", "steps=3")
VALUES = ("trainer.lr=2", "trainer.regularizer=1")


@pytest.fixture
def trial(compose_priced: Compose) -> Trial:
    return compose_priced([*LINE, *VALUES]).plan.trials[0]


def receipt_for(trial: Trial, resume: int = 0) -> Receipt:
    paper = Receipt(account="digits", plan="p", trial=trial.id, attempt=1, charge="c", entries=2, head="h")
    return replace(paper, resume=resume, accesses=digest_of_declared_events([trial.event]))


def session(
    trial: Trial, place: Path, resume: int = 0, should_stop: Callable[[], bool] = lambda: False
) -> TrialResult | None:
    place.mkdir(exist_ok=True)
    receipt = receipt_for(trial, resume)
    receipt.write(place)
    train_sessions_and_write_results(
        [TrialSession(trial=trial, claimed=claimed(trial, receipt), place=both(place))], MACHINE, should_stop
    )
    return TrialResult.read(place)


def run(trial: Trial, place: Path) -> TrialResult:
    result = session(trial, place)
    assert result is not None
    return result


def test_a_trial_that_would_run_more_than_its_charge_runs_nothing(trial: Trial, tmp_path: Path) -> None:
    """A charge for one step less than the configuration runs."""
    ((step, steps),) = mechanisms_with_counts(trial.event.training)
    undercharged = replace(trial, event=PlanEvent(training=repeat(step, steps - 1), validation=trial.event.validation))
    result = run(undercharged, tmp_path / "trial")
    assert result.status is Status.FAILED
    assert (result.score, result.event, result.steps) == (None, None, 0)
    assert result.error is not None
    assert result.error.startswith("ContractBroken: The run differs from its charge")


def test_a_trial_that_would_run_something_else_than_its_charge_opens_no_record(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A charge at other noise."""
    monkeypatch.setattr(run_records, "open_records", lambda *_: pytest.fail("records were opened"))
    other = replace(trial, event=replace(trial.event, training=repeat(STEP, 3)))
    result = run(other, tmp_path / "trial")
    assert result.status is Status.FAILED
    assert result.score is None
    assert result.error is not None
    assert result.error.startswith("ContractBroken: The run differs from its charge")
    assert result.event is None


@pytest.mark.parametrize(("seed", "randomness"), [(None, "secret"), (7, "reproducible")])
def test_a_result_says_whether_its_noise_can_be_computed(
    trial: Trial, tmp_path: Path, seed: int | None, randomness: str
) -> None:
    seeded = replace(trial, config={**trial.config, "seed": seed})
    assert run(seeded, tmp_path / "trial").randomness == randomness


def test_a_trial_uses_nobody_elses_generator_and_leaves_them_alone(trial: Trial, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    first = run(trial, tmp_path / "a")
    torch.manual_seed(12345)
    state = torch.get_rng_state()
    second = run(trial, tmp_path / "b")
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(before, state)
    assert first.status is second.status is Status.FINISHED
    models = [(tmp_path / place / MODEL_FILE).read_bytes() for place in ("a", "b")]
    assert models[0] != models[1], "the noise is drawn afresh, whatever the global seed"


def test_a_trial_with_more_weights_than_were_charged_is_refused(trial: Trial, tmp_path: Path) -> None:
    """Each weight is a noisy number in each step, whose rounding is priced."""
    ((step, steps),) = mechanisms_with_counts(trial.event.training)
    fewer = with_rounded_noise(repeat(step, steps), trial.config["weights"] - 1)
    result = run(replace(trial, event=replace(trial.event, training=fewer)), tmp_path / "trial")
    assert result.status is Status.FAILED
    assert result.score is None
    assert result.error is not None
    assert "differs from its charge" in result.error


def test_initial_weights_depend_on_the_trial_alone(trial: Trial) -> None:
    def weights(identity: str) -> torch.Tensor:
        return torch.cat([parameter.flatten() for parameter in make_model(trial.config, identity).parameters()])

    assert torch.equal(weights(trial.id), weights(trial.id))
    assert not torch.equal(weights(trial.id), weights("another"))


def test_checkpoints_are_part_of_what_a_trial_is_and_costs(compose_priced: Compose) -> None:
    def planned(*checkpoint: str) -> Trial:
        return compose_priced([*LINE, "privacy.noise_multiplier=3", *VALUES, *checkpoint]).plan.trials[0]

    plain, paid = planned(), planned("checkpoint.every=2", "checkpoint.resumes=3")
    ((step, steps),) = mechanisms_with_counts(plain.event.training)
    assert steps == 3, "nothing is paid for a stop at the user's wish"
    weights = plain.config["weights"]
    assert are_same_events(paid.event.training, with_rounded_noise(repeat(step, 3 + 3 * 2), weights))
    assert plain.id != paid.id
    long = planned("checkpoint.every=3", "checkpoint.resumes=3")
    assert are_same_events(long.event.training, plain.event.training), "there is no checkpoint before the end"
    assert are_same_events(planned("checkpoint.every=1", "checkpoint.resumes=0").event.training, plain.event.training)


@pytest.mark.parametrize(
    "wrong", ["every=0", "every=1.5", "every=true", "every=often", "resumes=-1", "resumes=null", "resumes=1.0"]
)
def test_checkpoints_that_make_no_sense_are_refused(compose_priced: Compose, wrong: str) -> None:
    with pytest.raises(BadInput, match=f"Expected checkpoint.{wrong.partition('=')[0]}="):
        compose_priced([*LINE, *VALUES, f"checkpoint.{wrong}"])


def test_a_checkpoint_is_a_mapping_of_two(compose_priced: Compose) -> None:
    for wrong in ("checkpoint=5", "+checkpoint.foo=1", "~checkpoint.resumes"):
        with pytest.raises(BadInput, match="to have every and resumes, and nothing else"):
            compose_priced([*LINE, *VALUES, wrong])


def test_a_stopped_trial_has_no_result_and_another_session_ends_it(trial: Trial, tmp_path: Path) -> None:
    place = tmp_path / "trial"
    assert session(trial, place, should_stop=lambda: True) is None
    assert can_resume(both(place), trial, 1)
    assert steps_spent(both(place), trial, 1) == 1
    assert not (place / "progress").exists()
    result = session(trial, place, resume=1)
    assert result is not None
    assert result.status is Status.FINISHED, result.error
    assert result.event is not None
    assert are_same_events(from_json(dict(result.event)), trial.event.training)
    assert result.steps == 3
    assert (place / "steps-1").exists()
    assert not [*place.glob("checkpoint-*")], "nobody goes on from them any more"
    assert not can_resume(both(place), trial, 1)


def test_a_try_goes_on_with_the_secret_weights_that_it_started_from(trial: Trial, tmp_path: Path) -> None:
    """Its steps are so short that its weights stay where they started."""
    one = replace(trial, config={**trial.config, "draw": 0, "trainer": {**trial.config["trainer"], "lr": 1e-12}})
    place, again = tmp_path / "trial", tmp_path / "again"
    session(one, place, should_stop=lambda: True)
    first = kept_weights(place)
    session(one, place, resume=1, should_stop=lambda: True)
    assert torch.allclose(kept_weights(place), first)
    session(one, again, should_stop=lambda: True)
    assert not torch.allclose(kept_weights(again), first), "another attempt starts elsewhere"


def kept_weights(place: Path) -> torch.Tensor:
    stored = read_checkpoint_file(place, 1)
    assert stored is not None
    weights = torch.load(BytesIO(stored[1]), weights_only=True)["weights"]
    assert isinstance(weights, torch.Tensor)
    return weights


def test_a_trial_that_cannot_go_on_fails_in_one_sentence(trial: Trial, tmp_path: Path) -> None:
    place = tmp_path / "trial"
    session(trial, place, should_stop=lambda: True)
    path = place / "checkpoint-1"
    path.write_bytes(path.read_bytes()[:-2])
    result = session(trial, place, resume=1)
    assert result is not None
    assert result.status is Status.FAILED
    assert result.error is not None
    assert result.error.startswith("ContractBroken: Expected ")
    assert "\n" not in result.error
    assert result.steps >= 1


def test_a_receipt_of_another_charge_resumes_nothing(trial: Trial, tmp_path: Path) -> None:
    place = tmp_path / "trial"
    session(trial, place, should_stop=lambda: True)
    other = replace(receipt_for(trial, 1), charge="another")
    train_sessions_and_write_results(
        [TrialSession(trial=trial, claimed=claimed(trial, other), place=both(place))], MACHINE
    )
    result = TrialResult.read(place)
    assert result is not None
    assert result.error is not None
    assert result.error.startswith("NoReceipt: The checkpoint has plan")


def test_an_attempt_that_was_begun_is_not_begun_again(trial: Trial, tmp_path: Path) -> None:
    """A claim that somebody removed: the marks are still there."""
    place = tmp_path / "trial"
    session(trial, place, should_stop=lambda: True)
    result = session(trial, place)
    assert result is not None
    assert result.error is not None
    assert "File exists" in result.error


def test_every_session_of_a_seeded_trial_has_streams_of_its_own(trial: Trial) -> None:
    seeded = replace(trial, config={**trial.config, "seed": 1})

    def key(attempt: int, resume: int, trial: Trial = seeded) -> tuple[int, ...]:
        streams = make_streams(trial, replace(receipt_for(trial, resume), attempt=attempt))
        return tuple(int(word) for word in streams.noise.bit_generator.state["s"]["seed"][:2])

    assert key(1, 0) == key(2, 0) == key(1, 0)
    assert len({key(1, 0), key(1, 1), key(1, 2), key(2, 1), key(2, 2)}) == 5
    assert key(1, 1) == key(1, 1)
    assert key(1, 0, trial) != key(1, 0, trial)


SCORES = """
from dataclasses import dataclass
from dpsweep.trainers.declarations.estimates import Estimate
from dpsweep.trainers.declarations.scores import PrivateHoldout, Score

@dataclass(frozen=True, kw_only=True)
class Broken(Score):
    held: PrivateHoldout
    value: float
    low: float = 0.0
    high: float = 1.0
    statement: str = "broken"

    def event(self, adjacency): return self.held.event(adjacency)
    def train_records(self, records, adjacency): return self.held.train_records(records, adjacency)
    def check(self, test_records, *, public): pass
    def split(self, private, test, adjacency): return self.held.split(private, test, adjacency)
    def measure(self, model, data, rng, device, loss):
        return Estimate(value=float(self.value), low=float(self.low), high=float(self.high))
"""


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("wrong", [{"value": math.nan}, {"value": 0.5, "high": math.inf}], ids=str)
def test_a_score_that_is_no_number_is_a_failure(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, float]
) -> None:
    (tmp_path / "brokenscores.py").write_text(SCORES)
    monkeypatch.syspath_prepend(tmp_path)
    held = {"_target_": tag_or_path_of_class(trial.config["score"]), **fields_without_class_name(trial.config["score"])}
    score = {"_target_": "brokenscores.Broken", "held": held}
    shown = {name: str(value) for name, value in wrong.items()}  # a configuration is JSON, which has no such numbers
    result = run(replace(trial, config={**trial.config, "score": score | shown}), tmp_path / "trial")
    assert result.status is Status.FAILED
    assert result.score is None
    assert result.error is not None
    assert "to be finite" in result.error
    assert result.event is not None
    assert are_same_events(from_json(dict(result.event)), trial.event.training)
    assert (tmp_path / "trial" / "steps-1").read_text().endswith("score 3\n"), "it was measured, and is paid for"


STEPS = 200_000
"""More than a job takes before it hears of a stop, however late that comes."""


@pytest.fixture
def job(compose_priced: Compose, tmp_path: Path) -> Iterator[tuple[SweepFolder, Trial, Callable[[], None]]]:
    """A folder with a charged plan of one long trial, the trial, and the job that Hydra would start for it."""
    plan = compose_priced([*LINE, *VALUES, f"steps={STEPS}", "privacy.noise_multiplier=3", "score.noise_std=3"]).plan
    (trial,) = plan.trials
    folder = SweepFolder(root=tmp_path / "sweep", store=launched(tmp_path / "private"))
    plan.write(folder.plan_path)
    replace(receipt_for(trial), plan=plan.id, launch=NONCE).write(folder.trial_folder(trial.id))
    words = [f"block='{plan.blocks[0].id}'", f"hydra.sweep.dir={folder.root}", f"store={folder.private_store.root}"]
    config = job_config(words, tmp_path)
    yield folder, trial, lambda: run_block(config)
    HydraConfig.instance().cfg = None


def test_a_job_that_shall_stop_claims_nothing(job: tuple[SweepFolder, Trial, Callable[[], None]]) -> None:
    folder, trial, run_job = job
    folder.stop_file_path.touch()
    run_job()
    assert {path.name for path in folder.trial_folder(trial.id).iterdir()} == {"receipt.json"}


@pytest.mark.parametrize("asked_by", ["file", "signal"])
def test_a_job_at_work_that_shall_stop_leaves_a_checkpoint(
    job: tuple[SweepFolder, Trial, Callable[[], None]], asked_by: str
) -> None:
    folder, trial, run_job = job
    place = folder.trial_folder(trial.id)

    def ask() -> None:
        wait((place / "progress").exists, "the first step")
        folder.stop_file_path.touch() if asked_by == "file" else os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    run_job()
    asking.join()
    assert TrialResult.read(place) is None
    assert can_resume(folder.trial_folder_and_private_record(trial.id), trial, 1)
    assert 0 < steps_spent(folder.trial_folder_and_private_record(trial.id), trial, 1) < STEPS


def test_a_job_does_not_work_where_another_is_at_work(job: tuple[SweepFolder, Trial, Callable[[], None]]) -> None:
    folder, trial, run_job = job
    with training_lock(folder.trial_folder(trial.id)), pytest.raises(BadInput, match="is being run by process"):
        run_job()
    assert not claim_path(folder.trial_folder(trial.id), 1).exists()
