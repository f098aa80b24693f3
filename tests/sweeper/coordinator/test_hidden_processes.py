"""A search that hides its number of tries shows other users of the machine the same processes for every draw.

The tests read what `ps` and `ls` show everybody: /proc, and the folders that all users share.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.callbacks import Callbacks
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext
from omegaconf import OmegaConf

from dpsweep.accounting.errors import ContractBroken, NoReceipt
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import RECEIPT_FILE, Receipt
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.searches.stored_draw import SearchOutcome
from dpsweep.accounting.selection.interface import Draw
from dpsweep.sweeper.job.hidden_search_log import HiddenSearchLog
from dpsweep.sweeper.job.locks import is_being_trained
from dpsweep.sweeper.job.machine import Compute
from dpsweep.sweeper.launchers.hydra_jobs import HydraJobs
from dpsweep.sweeper.launchers.workers import HERE, Workers
from dpsweep.sweeper.searches.runner import Runner
from tests.forked_programs import Run
from tests.randomized import TRAINS
from tests.sweeper.search_programs import GRID, SELECTION, THRESHOLD, Place, Program, folder_of, result_of
from tests.waiting import HANGS, wait

pytestmark = TRAINS

FORK = ("hydra/launcher=fork", "hydra.launcher.n_jobs=2")
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
LONGER = ("steps=1500", "privacy.noise_multiplier=150", "page=false", "compute.device=cpu")
HELD_BACK = """
import math, time
from pathlib import Path
from torch import nn

class Net(nn.Linear):
    '''A layer whose first step waits for the file `go`, once a run has begun.'''

    def __init__(self, shape, classes):
        super().__init__(math.prod(shape), classes)

    def forward(self, values):
        while any(Path().glob("sweeps/*/*/trials/*/claim-1")) and not Path("go").exists():
            time.sleep(0.01)
        return super().forward(values.flatten(1))
"""
SHARED_FOLDERS = ("/tmp", "/dev/shm", "/var/tmp")
TICKS = os.sysconf("SC_CLK_TCK")


def held_back(line: Sequence[str], folder: Path) -> list[str]:
    """The search, in this folder, with trainings that do not end before the test makes the file `go`."""
    (folder / "my_model.py").write_text(HELD_BACK)
    return [*line, "model._target_=my_model.Net", "page=false", "compute.device=cpu"]


@dataclass
class Watch:
    """What another user sees of a program: its processes, their processor time, and new names in shared folders."""

    pid: int
    processes: dict[int, str] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=lambda: names_in_shared_folders())

    def look(self) -> None:
        parents, stats = {}, {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)], stats[int(folder.name)] = int(stat[1]), stat
        for pid, stat in stats.items():
            if not descends(pid, self.pid, parents):
                continue
            with suppress(OSError):
                if words := Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " "):  # none as it ends
                    self.processes[pid] = words
                    self.seconds[pid] = (int(stat[11]) + int(stat[12])) / TICKS
        self.names |= names_in_shared_folders() - self.before

    @property
    def shown(self) -> tuple[Counter[str], Counter[str]]:
        """How many processes and files there were of each name, without the numbers in it."""
        kinds = Counter(without_numbers(words) for words in self.processes.values())
        own = re.compile(rf"(?<![0-9a-z]){self.pid}(?![0-9a-z])")  # no part of a number or a digest of another program
        return kinds, Counter(without_numbers(name) for name in self.names if own.search(name))


def descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    """Whether a process was started by another one, or by one that it started."""
    while pid in parents and parents[pid] != ancestor:
        pid = parents[pid]
    return pid in parents


def names_in_shared_folders() -> set[str]:
    return {str(path) for folder in SHARED_FOLDERS if Path(folder).is_dir() for path in Path(folder).iterdir()}


def without_numbers(words: str) -> str:
    """The words without process ids, addresses, digests, and the random part of a semaphore's name."""
    return re.sub(r"(?<=-)\w{8}$|[0-9a-f]{32}|\d+", "N", words)


def watched(here: Place, line: Sequence[str], environment: dict[str, str], tmp_path: Path, *, fresh: bool) -> Watch:
    """Runs a search to its end and watches it."""
    if fresh:
        words = [sys.executable, "-m", "sweeper", *line]
        process = subprocess.Popen(
            words, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        watch = Watch(pid=process.pid)
        while process.poll() is None:
            watch.look()
            time.sleep(0.01)
        assert process.stderr is not None
        said = process.stderr.read()
        process.stderr.close()
        assert process.returncode == 0, said
    else:
        with Run(line, tmp_path, environment, module="sweeper") as run:
            watch = Watch(pid=run.pid)
            while run.poll() is None:
                watch.look()
                time.sleep(0.01)
            done = run.wait(HANGS)
        assert done.code == 0, done.err
    assert SearchOutcome.read(here.folder.outcome_path) is not None
    return watch


@pytest.mark.parametrize(
    ("launcher", "fresh"), [(FORK, False), pytest.param(JOBLIB, True, marks=pytest.mark.long)], ids=["fork", "joblib"]
)
def test_every_draw_shows_the_same_processes_that_all_compute(
    place: Callable[..., Place],
    environment: dict[str, str],
    tmp_path: Path,
    launcher: Sequence[str],
    fresh: bool,
) -> None:
    if launcher is JOBLIB:
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs dpsweep[parallel]")
    line = [*SELECTION, *LONGER, *launcher]
    shown = []
    for number, draw in enumerate([(0,), (3, 0, 0, 2, 1), *([(2, 1)] if launcher is JOBLIB else [])]):
        own = Ledger(tmp_path / str(number) / "ledger.sqlite")
        own.path.parent.mkdir()
        here = place(line, root=str(number), own=own)
        log = here.plant(Draw(tries=draw))
        where = {**environment, "DPSWEEP_LEDGER": str(own.path)}
        watch = watched(here, line, where, tmp_path / str(number), fresh=fresh)
        assert [one.result is not None for one in log.drawn_tries_in_current_state()] == [True] * len(draw)
        shown.append(watch.shown)
        computed = sorted(watch.seconds.values())[-2:]
        assert computed[0] > computed[1] / 3, "a worker without a try would tell how many tries there are"
    for one in shown:
        assert one == shown[0]
    assert sum(shown[0][0].values()) == (2 if launcher is FORK else 4)


def test_workers_take_each_try_once_and_leave_what_cannot_win(place: Callable[..., Place], program: Program) -> None:
    line = [*THRESHOLD, *FORK, "tuning.threshold=0.01"]
    here = place(line)
    log = here.plant(Draw(tries=tuple(range(4)) * 5, threshold=0.01))
    done = program(*line)
    assert done.returncode == 0, done.stderr
    begun = [one for one in log.drawn_tries_in_current_state() if one.begun]
    assert 1 <= len(begun) < len(log.drawn_tries_in_current_state())
    assert all(one.result is not None for one in begun)
    assert "lost jobs" not in done.stderr


def test_a_search_is_over_although_a_worker_before_the_winner_was_killed(
    place: Callable[..., Place], environment: dict[str, str], tmp_path: Path
) -> None:
    """The other worker takes no try beyond the first good one, as if no worker had been killed."""
    line = held_back([*THRESHOLD, *FORK, "tuning.threshold=0.01"], tmp_path)
    here = place(line)
    log = here.plant(Draw(tries=(0, 1, 2, 3, 0, 1, 2, 3), threshold=0.01))
    first = here.folder.trial_folder(log.drawn_tries_in_current_state()[0].trial.id)
    with Run(line, tmp_path, environment, module="sweeper") as run:
        wait(lambda: sum(one.begun for one in log.drawn_tries_in_current_state()) == 2 or run.poll() is not None)
        os.kill(json.loads((first / ".lock.holder").read_text())["pid"], 9)
        wait(lambda: not is_being_trained(first), "the end of the killed worker")
        (tmp_path / "go").touch()
        done = run.wait(HANGS)
    assert done.code == 4, done.err
    assert [one.begun for one in log.drawn_tries_in_current_state()] == [True, True, *[False] * 6]
    assert SearchOutcome.read(here.folder.outcome_path) == SearchOutcome(attempt=1, winner=1)


@pytest.mark.long
def test_tries_of_a_lost_worker_are_taken_by_as_many_workers_again(
    place: Callable[..., Place], environment: dict[str, str], tmp_path: Path
) -> None:
    line = held_back([*SELECTION, *FORK], tmp_path)
    here = place(line)
    log = here.plant(Draw(tries=(0, 1, 2, 3, 0)))
    with Run(line, tmp_path, environment, module="sweeper") as run:
        watch = Watch(pid=run.pid)
        wait(lambda: sum(one.begun for one in log.drawn_tries_in_current_state()) == 2 or run.poll() is not None)
        watch.look()
        first = set(watch.processes)
        for pid in first:
            os.kill(pid, 9)
        (tmp_path / "go").touch()
        while run.poll() is None:
            watch.look()
            time.sleep(0.01)
        done = run.wait(HANGS)
    assert done.code == 4, done.err
    assert "2 of 5 tries failed or were killed" in done.err
    assert [one.result is None for one in log.drawn_tries_in_current_state()] == [True, True, False, False, False]
    assert len(first) == 2
    assert len(watch.processes) == 4, "two more, whatever is left to try"


Launch = Callable[[Sequence[Sequence[str]]], list[JobReturn]]


def run_with(here: Place, log: HiddenSearchLog, launch: Launch, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Runs the tries with two workers that do what `launch` does; the errors of the launcher and its jobs."""

    class Launcher:
        def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
            return launch(job_overrides)

    monkeypatch.setattr(Plugins, "instantiate_launcher", lambda *_, **__: Launcher())
    config = OmegaConf.create({"hydra": {"sweep": {"dir": "."}, "runtime": {}, "help": {}}})
    task: Any = None
    runner = Runner(
        search=here.search,
        log=log,
        jobs=HydraJobs(context=HydraContext(config_loader=task, callbacks=Callbacks()), task=task, config=config),
        compute=Compute(device="cpu", threads=1, chunk=None, together=1),
        data=None,
        workers=2,
        batch=2,
    )
    return runner.run_tries_on_workers_and_collect_errors([one.trial for one in log.drawn_tries_in_current_state()])


def take(log: HiddenSearchLog, place: int) -> None:
    """Does what a worker does for the try at this place."""
    trial = log.drawn_tries_in_current_state()[place].trial
    folder = log.sweep_folder.trial_folder(trial.id)
    receipt = Receipt.claim(folder, log.sweep_folder.private_store, plan=log.search.plan.id, trial=trial.id)
    result_of(trial, 0.5, receipt.attempt).write(folder)


def test_the_number_of_threads_does_not_follow_from_the_number_of_tries(
    place: Callable[..., Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    class CountedThread(threading.Thread):
        def start(self) -> None:
            started.append(1)
            super().start()

    counts = []
    for tries in (2, 40):
        here = place(SELECTION, root=str(tries), own=Ledger(tmp_path / f"{tries}.sqlite"))
        log = here.plant(Draw(tries=(0, 1) * (tries // 2)))

        def launch(jobs: Sequence[Sequence[str]], log: HiddenSearchLog = log, tries: int = tries) -> list[JobReturn]:
            for number in range(tries):
                take(log, number)
            return [JobReturn(status=JobStatus.COMPLETED) for _ in jobs]

        with monkeypatch.context() as patch:
            patch.setattr(threading, "Thread", CountedThread)
            started.clear()
            assert run_with(here, log, launch, patch) == ()
        counts.append(len(started))
        assert SearchOutcome.read(here.folder.outcome_path) is not None
    assert counts[0] == counts[1]


def test_a_damaged_receipt_of_an_ended_try_stops_no_other_try(place: Callable[..., Place], program: Program) -> None:
    line = [*SELECTION, *FORK]
    here = place(line)
    log = here.plant(Draw(tries=(0, 1, 2)))
    first = log.drawn_tries_in_current_state()[0].trial
    for receipt in log.start_and_issue_receipts([first]):
        receipt.write(here.folder.trial_folder(first.id))
    take(log, 0)
    log.record_ended_attempts()
    (here.folder.trial_folder(first.id) / RECEIPT_FILE).write_text("damaged")
    done = program(*line)
    assert done.returncode == 0, done.stderr
    assert [one.result is not None for one in log.drawn_tries_in_current_state()] == [True, True, True]


@pytest.mark.parametrize(("taken", "refused"), [(2, False), (0, True)], ids=["others took all", "nobody took any"])
def test_a_worker_that_refuses_ends_the_search_only_if_a_try_is_left(
    place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, taken: int, refused: bool
) -> None:
    here = place(SELECTION)
    log = here.plant(Draw(tries=(0, 1)))

    def launch(jobs: Sequence[Sequence[str]]) -> list[JobReturn]:
        for number in range(taken):
            take(log, number)
        broken = JobReturn(status=JobStatus.FAILED, _return_value=NoReceipt("no receipt"))
        return [broken, *(JobReturn(status=JobStatus.COMPLETED) for _ in jobs[1:])]

    with pytest.raises(ContractBroken, match="refused its tries") if refused else nullcontext():
        assert run_with(here, log, launch, monkeypatch) == ()
    assert (SearchOutcome.read(here.folder.outcome_path) is None) is refused


def test_where_jobs_may_be_listed_a_draw_is_one_job() -> None:
    known = Workers.from_launcher_settings({"_target_": min(HERE), "n_jobs": 3}, cores=4)
    assert known.limited_for_secret_draw() == known
    for unknown in ({"_target_": "hydra_plugins.somebody.Launcher"}, {"array_parallelism": 256, "cpus_per_task": 4}):
        workers = Workers.from_launcher_settings(unknown, cores=4)
        assert workers.limited_for_secret_draw() == replace(workers, jobs=1, batch=1)


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("final=true",)], ids=["search", "final run"])
@pytest.mark.parametrize("rule", [SELECTION[-2:], ("tuning=best_of_grid",)], ids=["drawn", "every point"])
def test_a_queue_lists_one_job_for_the_whole_search(
    fresh_program: Program, tmp_path: Path, words: Sequence[str], rule: Sequence[str]
) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs dpsweep[slurm]")
    folder = folder_of(
        fresh_program(*GRID, *rule, *words, "hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5")
    )
    jobs = {path.name.partition("_")[0] for path in tmp_path.rglob("*_submitted.pkl")}
    assert len(jobs) == 1, "whatever the draw and whether a final run follows"
    search = SecretDraw(plan=Plan.read(folder.plan_path), folder=folder)
    stored, outcome = search.stored_draw, SearchOutcome.read(folder.outcome_path)
    assert stored is not None
    assert outcome is not None
    assert all(one.result is not None for one in search.states_of_tries_and_final_run(stored))
    assert (search.chosen_final_run() is not None) is (bool(words) and outcome.winner is not None)
    printed = b"".join(path.read_bytes() for path in tmp_path.rglob("*_log.*"))
    assert not any(one.trial.id.encode() in printed for one in search.states_of_tries_and_final_run(stored))
