"""A place for one sweep that is killed again and again, and what must hold whenever no process works there."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pandas as pd
import pytest
from scipy.stats import norm

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.chain.hash_chain import Entry
from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import mechanisms_with_counts
from dpsweep.accounting.ledger.book import Launched
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.ledger.upkeep import verify_entries
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status
from dpsweep.accounting.searches.every_point import EveryPoint
from dpsweep.accounting.searches.folder_audit import chain_ends_in_receipts, verify_sweep_folder_and_describe
from dpsweep.accounting.searches.interface import search_class_for_plan, search_for_plan
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.sweeper.commands.one_sentence import MEANINGS
from tests.faults import access_log
from tests.faults.access_log import Look, Looks
from tests.faults.syscalls import Fault, Stroke
from tests.forked_programs import Done, Run
from tests.studies import study_in

SHARDS = 6

STEPS, EVERY, RESUMES = 4, 2, 3
NOISE_STD = 0.3

ALIKE = 0.02
"""How much two scores of one point may differ. All training records take part in every step, and the steps' noise is so
small that it changes the judgement of 3 of the 340 held-out records at most (none did, of 200 runs), which is 0.009.
What is left for the scores' own noise, on the two counts of either accuracy, is more than 10 of its standard
deviations. Two steps more or less make a difference of 0.04 and more."""

FAULTS = pytest.mark.randomized(
    draws="noise of trainings and scores, tries of searches, instants of kills",
    bound="two scores differ by 10 standard deviations of a normal variable, at most 1000 times",
    false_alarm=1000 * 2 * float(norm.sf(10)),
)

SWEEP = (
    "dataset=digits",
    "trainer=dpnsgd",
    "trainer.regularizer=0.1,1",
    "trainer.lr=2",
    "compute.together=1",
    f"steps={STEPS}",
    "sampler._target_=tests.faults.access_log.Sampler",
    "sampler.batch_size=1438",
    "privacy.noise_multiplier=0.02",
    "score._target_=tests.faults.access_log.Score",
    f"score.noise_std={NOISE_STD}",
    "accountant=rdp",
    "accountant.witnesses=[]",
    "budget.epsilon=1e8",
    "budget.delta=0.1",
    "compute.threads=1",
    "hydra.sweeper.retry=killed",
)
CHECKPOINTS = (f"checkpoint.every={EVERY}", f"checkpoint.resumes={RESUMES}")
HIDING = ("tuning=private_selection", "tuning.mean=3")


@dataclass(kw_only=True)
class Sandbox:
    """A user's working folder with the command that is typed in it, and what was seen there so far.

    `root` holds all that the program writes, `outside` what it does not know of: the access log and
    the logs of system calls. `status` is how its trials end.
    """

    root: Path
    outside: Path
    words: Sequence[str]
    environment: Mapping[str, str]
    status: Status = Status.FINISHED
    entries: tuple[Entry, ...] = ()
    finished: dict[str, bytes] = field(default_factory=dict)
    looked: Looks = field(default_factory=Counter)
    kept: dict[Path, bytes] = field(default_factory=dict)
    plan: Plan | None = None

    @classmethod
    def at(cls, folder: Path, words: Sequence[str]) -> Sandbox:
        """A new one."""
        root, outside = folder / "root", folder / "outside"
        for path in (root, outside):
            path.mkdir(parents=True)
        return cls(root=root, outside=outside, words=words, environment=_environment(root, outside))

    def copied(self, folder: Path) -> Sandbox:
        """A copy that remembers nothing, for damage."""
        shutil.copytree(self.root.parent, folder)
        root, outside = folder / "root", folder / "outside"
        return Sandbox(root=root, outside=outside, words=self.words, environment=_environment(root, outside))

    @property
    def folder(self) -> SweepFolder:
        """The one sweep's."""
        (found,) = self.root.glob("sweeps/*/*")
        return SweepFolder(root=found)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.root / "books" / "ledger.sqlite")

    @property
    def looks(self) -> Looks:
        """Who looked at the records so far, by the access log."""
        return access_log.looks(self.outside / "looks")

    def begin(self, stroke: Stroke = Stroke.NONE, at: int = 0, place: Path = Path()) -> Run:
        """Types the command, and strikes at its `at`-th instant."""
        (self.outside / "instants").unlink(missing_ok=True)
        fault = Fault(root=self.root, log=self.outside / "instants", stroke=stroke, at=at, place=place)
        return Run(("sweep", *self.words), self.root, self.environment, fault)

    def run(self, stroke: Stroke = Stroke.NONE, at: int = 0, place: Path = Path()) -> Done:
        """Types the command, strikes, and waits for its end."""
        return self.begin(stroke, at, place).wait()

    def verb(self, *words: str) -> Done:
        """Another command."""
        return Run(words, self.root, self.environment).wait()

    @property
    def charges(self) -> int:
        """How often the ledger was charged so far."""
        return len(self.ledger.statement("digits").charges)

    def when(self, name: str, time: int = 1) -> int:
        """The instant of the last run at which this was about to happen, so many times; 0 counts back from the end."""
        found = [number for number, line in enumerate(self.instants(), start=1) if re.search(name, line)]
        return found[time - 1]

    def instants(self) -> list[str]:
        """What the last run reached."""
        return (self.outside / "instants").read_text().splitlines()

    def finish(self, most: int = 3) -> Done:
        """Types the command until it is done, as a user does after a fault."""
        for _ in range(most):
            done = self.run()
            self.check()
            if done.code == ExitCode.DONE:
                return done
        raise AssertionError(f"not done after {most} more runs\n{done.out}\n{done.err}")

    def check(self) -> None:
        """All that must hold between two runs, whatever became of the last one."""
        folders = list(self.root.glob("sweeps/*/*/plan.json"))
        looks = self.looks
        if not self.ledger.account_names():
            assert not looks, "records were looked at though no ledger says so"
            return
        verify_entries(self.ledger.chain)
        entries = self.ledger.statement("digits").entries
        assert entries[: len(self.entries)] == self.entries, "the ledger only grows"
        self.entries = entries
        if folders:
            self.plan = Plan.read(self.folder.plan_path)
        if (plan := self.plan) is None:
            assert not looks
            return
        verify_entries(self.ledger.chain, tuple(chain_ends_in_receipts(self.folder.root)))
        verify_sweep_folder_and_describe(self.folder.root, self.ledger)
        self._check_charged(plan, looks)
        {EveryPoint: self._check_points, SecretDraw: self._check_tries}[search_class_for_plan(plan)](plan, looks)
        self._check_finished(looks)

    def _check_charged(self, plan: Plan, looks: Looks) -> None:
        """What was charged covers what was looked at, attempt by attempt and in all."""
        spare = RESUMES * EVERY if CHECKPOINTS[0] in self.words else 0
        most = {Look.STEP: STEPS + spare, Look.SCORE: 1}
        for (trial, attempt, look), times in looks.items():
            assert times <= most[look], f"attempt {attempt} at trial {trial}: {times} times {look}"
        point = plan.trials[0]
        ((step, _),) = mechanisms_with_counts(point.event.training)
        taken = {look: sum(times for (*_, kind), times in looks.items() if kind is look) for look in Look}
        assert point.event.validation is not None
        epsilon, delta = reserved_amounts(self.ledger.statement("digits"))
        for event, times in ((step, taken[Look.STEP]), (point.event.validation, taken[Look.SCORE])):
            if times:
                cost = Rdp().epsilon(events.repeat(event, times), delta, plan.adjacency)
                assert cost <= epsilon or search_class_for_plan(plan) is SecretDraw

    def _check_points(self, plan: Plan, looks: Looks) -> None:
        """Every attempt that looked was started on a charge of its own."""
        attempts = self.ledger.statement("digits").attempts_of_plan(plan.id)
        for trial, attempt, _ in looks:
            assert attempt <= attempts.started[trial], f"attempt {attempt} at trial {trial} was never started"
        assert attempts.spares >= 0, "more attempts were started than were paid for"

    def _check_tries(self, plan: Plan, looks: Looks) -> None:
        """One charge, one start and one end, whatever happened; nothing ran but the stored draw, each try once."""
        kinds = [entry.kind for entry in self.entries if entry.plan == plan.id]
        heard = [kind for kind in kinds if kind != Launched.kind]
        assert heard == ["charge", "start", "settle"][: len(heard)]
        self._keep(self.folder.draw_path)
        self._keep(self.folder.outcome_path)
        tries = {trial.id for trial in search_for_plan(plan, self.folder).search_and_final_runs()}
        assert {trial for trial, _, _ in looks} <= tries
        assert {attempt for _, attempt, _ in looks} <= {1}

    def _check_finished(self, looks: Looks) -> None:
        """What has a result is never written or looked at again."""
        for trial, content in self.finished.items():
            assert (self.folder.trial_folder(trial) / "result.json").read_bytes() == content
            assert _of(trial, looks) == _of(trial, self.looked), f"the finished trial {trial} was repeated"
        for path in self.folder.trials_folder.glob("*/result.json"):
            assert json.loads(path.read_text())["status"] == self.status
            self.finished.setdefault(path.parent.name, path.read_bytes())
        self.looked = looks

    def _keep(self, path: Path) -> None:
        """A file that, once there, never changes and never goes."""
        if path in self.kept:
            assert path.read_bytes() == self.kept[path]
        elif path.exists():
            self.kept[path] = path.read_bytes()


def spread(chance: Random, first: int, last: int, every: int, shard: int) -> range:
    """One of `SHARDS` parts of the instants from `first` on and before `last`: of `every` so many, one at random."""
    return range(first + shard * every + chance.randrange(every), last, SHARDS * every)


def sentence(done: Done, *codes: ExitCode) -> str:
    """The one sentence that a run ended with, and one of these exit codes, in words."""
    assert done.code in codes, done.err
    assert "Traceback" not in done.err
    *_, last, code = done.err.strip().splitlines()
    assert code == f"(exit code {done.code}: {MEANINGS[ExitCode(done.code)]})"
    return last


def agree(sandbox: Sandbox, undisturbed: Sandbox) -> None:
    """The two sweeps show the same table up to noise, and the study holds each result once."""
    search = search_for_plan(Plan.read(sandbox.folder.plan_path), sandbox.folder)
    assert studied(sandbox.folder) == sorted(trial.id for trial in search.search_and_final_runs())
    alike(sandbox, undisturbed)


def alike(sandbox: Sandbox, undisturbed: Sandbox) -> None:
    """The two sweeps show the same table up to noise."""
    here, there = map(table_of, (sandbox, undisturbed))
    columns = ["method", "trainer.regularizer", "state", "epsilon_alone", "noise_multiplier"]
    assert here[columns].equals(there[columns])
    assert (here["accuracy"].astype(float) - there["accuracy"].astype(float)).abs().max() < ALIKE


def table_of(sandbox: Sandbox) -> pd.DataFrame:
    """The table, read with the memory of the sandbox's own user: to one machine two copies of a ledger are one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", sandbox.environment["XDG_STATE_HOME"])
        return read_sweep(sandbox.folder.root, sandbox.ledger).table.set_index("trial")


def studied(folder: SweepFolder) -> list[str]:
    """The trials that the study holds as finished."""
    trials = study_in(folder.optuna_study_path).trials
    return sorted(trial.user_attrs["trial"] for trial in trials if trial.state.name == "COMPLETE")


def _of(trial: str, looks: Looks) -> Looks:
    return Counter({key: times for key, times in looks.items() if key[0] == trial})


def _environment(root: Path, outside: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("DPSWEEP_DATA", "HYDRA_FULL_ERROR")}
    homes = {f"XDG_{kind.upper()}_HOME": str(root / kind) for kind in ("state", "config", "data")}
    return (
        kept
        | homes
        | {
            "DPSWEEP_LEDGER": str(root / "books" / "ledger.sqlite"),
            "COLUMNS": "200",
            "OMP_NUM_THREADS": "1",
            access_log.PLACE: str(outside / "looks"),
        }
    )
