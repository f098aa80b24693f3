"""Interrupted runs are launched again by the coordinator that launched them, on the charge that paid for them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder, private_store_of_plan
from dpsweep.accounting.selection.interface import Draw
from dpsweep.sweeper.launchers.fork_launcher import can_fork
from dpsweep.sweeper.progress.display import StepProgress
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import results
from tests.sweeper.search_programs import GRID, ONCE, SELECTION, Place, Program

pytestmark = [TRAINS, pytest.mark.skipif(not can_fork(), reason="needs Linux")]

PREEMPTED = """
import json, math, os, signal
from pathlib import Path
from torch import nn

class Net(nn.Linear):
    '''A layer in whose training each of the first processes gets a signal; SIGKILL after a checkpoint of its own.

    The processes that compute since the first run began are noted.
    '''

    def __init__(self, shape, classes, times, number):
        super().__init__(math.prod(shape), classes)
        self.times, self.number = times, number

    def forward(self, values):
        here, known = str(os.getpid()), Path("processes").read_text().split() if Path("processes").exists() else []
        holders = [json.loads(path.read_text()) for path in Path().glob("sweeps/*/*/trials/*/.lock.holder")]
        begins = here not in known and here in [str(holder["pid"]) for holder in holders]
        if begins:
            known.append(here)
            Path("processes").write_text(" ".join(known))
        if known:
            Path(f"computed-{here}").touch()
        checkpoints = Path().glob("sweeps/*/*/trials/*/checkpoint-1")
        steps = [json.loads(path.read_bytes().splitlines()[1])["step"] for path in checkpoints]
        is_beyond_checkpoint = here in known and sum(steps) > 2 * known.index(here)
        if here in known[: self.times] and (is_beyond_checkpoint if self.number == signal.SIGKILL else begins):
            os.kill(int(here), self.number)
        return super().forward(values.flatten(1))
"""
ONE = (
    *(word for word in GRID if not word.startswith("trainer.")),
    "trainer=dpsgd",
    "trainer.clip_norm=1",
    "trainer.lr=2",
)
FORK = ("hydra/launcher=fork", "hydra.launcher.n_jobs=1", "compute.device=cpu", "compute.together=1", "steps=8")


def preempted(folder: Path, times: int, number: signal.Signals = signal.SIGTERM) -> tuple[str, ...]:
    """The settings of a model, in this folder, whose first processes get a signal."""
    (folder / "my_model.py").write_text(PREEMPTED)
    return ("model._target_=my_model.Net", f"+model.times={times}", f"+model.number={int(number)}")


def bill(ledger: Ledger, folder: Path) -> tuple[list[str], int, int]:
    """The reasons of the charges, the number of attempts, and that of their resumed sessions."""
    plan = Plan.read(folder / "plan.json")
    statement = ledger.statement(plan.account, plan.id)
    started = statement.attempts_of_plan(plan.id).started
    resumed = [entry for entry in statement.entries if entry.kind == "resume"]
    return [str(charge.body["reason"]) for charge in statement.charges], sum(started.values()), len(resumed)


def test_a_preempted_run_is_resumed_as_often_as_the_user_says_and_only_then(
    tmp_path: Path, program: Program, ledger: Ledger
) -> None:
    words = [*ONE, *FORK, *preempted(tmp_path, 3)]
    for resume, code, finished, resumed in ((0, 4, 0, 0), (1, 4, 0, 2), (0, 0, 1, 3)):
        done = program(*words, *([f"hydra.sweeper.resume={resume}"] if resume else []))
        assert done.returncode == code, done.stdout + done.stderr
        folder = Path(done.stdout.strip().splitlines()[-1])
        assert len(results(folder)) == finished
        assert bill(ledger, folder) == (["plan"], 1, resumed)
        assert ("1 waiting at a checkpoint, of 1 trials" in done.stderr) is bool(code)
        assert ("launched again on their charge, 1 times in all" in done.stdout) is bool(resume)


@pytest.mark.parametrize(("number", "stopped", "killed"), [(signal.SIGTERM, 1, 0), (signal.SIGHUP, 0, 1)])
def test_a_display_tells_stopped_from_killed_runs(
    number: signal.Signals, stopped: int, killed: int, tmp_path: Path, program: Program, ledger: Ledger
) -> None:
    done = program(*ONE, *FORK, *preempted(tmp_path, 1, number))
    root = Path(done.stdout.strip().splitlines()[-1])
    plan = Plan.read(root / "plan.json")
    store = private_store_of_plan(ledger, plan.account, plan.id)
    runs = StepProgress(folder=SweepFolder(root=tmp_path / "empty", store=store), total=1, done=0)
    runs.add_watched_trials(plan.trials)
    runs.folder = SweepFolder(root=root, store=store)
    snapshot = runs.take_snapshot()
    assert (snapshot.running, snapshot.stopped, snapshot.killed, snapshot.done) == ((), stopped, killed, 0)


@pytest.mark.parametrize(("loses", "code", "resumed"), [(1, 0, 1), (2, 4, 1)])
def test_a_killed_run_is_resumed_while_its_price_covers_what_it_lost_and_is_not_repeated(
    loses: int, code: int, resumed: int, tmp_path: Path, program: Program, ledger: Ledger
) -> None:
    """`checkpoint.resumes=1` pays for the steps of one loss; another attempt would be another charge."""
    checkpoints = ("checkpoint.every=2", "checkpoint.resumes=1", "hydra.sweeper.resume=5")
    done = program(*ONE, *FORK, *preempted(tmp_path, loses, signal.SIGKILL), *checkpoints)
    assert done.returncode == code, done.stdout + done.stderr
    assert bill(ledger, Path(done.stdout.strip().splitlines()[-1])) == (["plan"], 1, resumed)
    assert ("failed or were killed; they stay charged" in done.stderr) is bool(code)


@pytest.mark.parametrize("tries", [(0,), (0, 1, 2)], ids=["no other try", "other tries"])
def test_the_one_job_of_a_hidden_search_is_resumed_with_all_of_its_tries(
    tries: tuple[int, ...], place: Callable[..., Place], tmp_path: Path, program: Program, ledger: Ledger
) -> None:
    """It is one job more for each preemption, with further tries and without; the ledger hears nothing of it."""
    line = [*SELECTION, *FORK, *preempted(tmp_path, 1), "hydra.sweeper.resume=1"]
    here = place(line)
    log = here.plant(Draw(tries=tries))
    done = program(*line)
    assert done.returncode == 0, done.stderr
    assert [one.result is not None for one in log.drawn_tries_in_current_state()] == [True] * len(tries)
    assert len((tmp_path / "processes").read_text().split()) == 2
    kinds = [str(entry.kind) for entry in ledger.statement("digits").entries]
    assert [kind for kind in kinds if kind in (*ONCE, "resume")] == [*ONCE, "launch", "launch"]


@pytest.mark.parametrize("tries", [(0,), (0, 1, 2)], ids=["no other try", "other tries"])
def test_the_one_job_of_a_hidden_search_that_was_killed_is_followed_by_one_that_computes(
    tries: tuple[int, ...], place: Callable[..., Place], tmp_path: Path, program: Program
) -> None:
    """Nobody sees whether a try is left: without one the next job trains on generated records."""
    line = [*SELECTION, *FORK, *preempted(tmp_path, 1, signal.SIGHUP)]
    log = place(line).plant(Draw(tries=tries))
    done = program(*line)
    assert done.returncode == 4, done.stderr
    assert [one.result is not None for one in log.drawn_tries_in_current_state()] == [False, *[True] * len(tries[1:])]
    assert len(list(tmp_path.glob("computed-*"))) == 2


@pytest.mark.parametrize("verb", ["plan", "sweep"])
def test_several_workers_of_a_hidden_search_are_not_resumed_and_nothing_is_charged(
    verb: str, program: Program, ledger: Ledger
) -> None:
    words = [*SELECTION, *FORK[:1], "hydra.launcher.n_jobs=2", "hydra.sweeper.resume=3"]
    done = program(verb, *words, module="dpsweep.sweeper.commands.cli")
    assert done.returncode == (0 if verb == "plan" else 2)
    said = " ".join((done.stdout + done.stderr).split())
    assert "Expected hydra.sweeper.resume=3 to be 0 under private_selection with 2 workers" in said
    assert ledger.account_names() == ()
