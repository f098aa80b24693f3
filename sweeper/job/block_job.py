"""The Hydra task of a job: it claims the receipts of a block's trials and trains them.

The task refuses to train unless its block is in a charged plan and each of its trials has an unused receipt. So a stale
plan, an edited point, and any call that bypasses `sweeper/commands/hydra_door.py` end here with one sentence.

A job that is asked to stop starts no further trials: the running trials finish their step and leave a checkpoint and no
result, and another job may continue them on receipts to resume. A process that dies leaves its last checkpoints; its
later steps are lost and stay charged.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from dpsweep.accounting.errors import BadInput, ContractBroken, NoReceipt
from dpsweep.accounting.group_commit import Flushing, together
from dpsweep.accounting.ledger.private_store import PrivateStore, TrialPlace
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.names.stored_classes import SCRIPT, name_of
from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.accounting.records.step_log import stretches
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.searches.interface import search_of
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.searches.stored_draw import DrawnTrial, scores_of
from dpsweep.sweeper.foreign.script_run import run_scripts
from dpsweep.sweeper.job.attempt_state import AttemptState, stage_of
from dpsweep.sweeper.job.locks import at_work, turn, working
from dpsweep.sweeper.job.machine import Compute, data_folder
from dpsweep.sweeper.job.standby import stand_by
from dpsweep.sweeper.job.stop_requests import stop_requests
from dpsweep.sweeper.trial.blocks import TRIES, at_once, part_of
from dpsweep.sweeper.trial.run import run_sessions
from dpsweep.sweeper.trial.session import Machine, Session
from dpsweep.trainers.user_modules import find_user_modules

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the C version is ten times faster, if PyYAML has it


_RUNNERS = {SCRIPT: run_scripts}
"""How the trials of a method are run, if not by dpsweep's own training."""


@dataclass(frozen=True, kw_only=True)
class _Task:
    """A job's sweep folder, plan, block and machine, and its stop request."""

    folder: SweepFolder
    plan: Plan
    block: Block
    machine: Machine
    should_stop: Callable[[], bool]

    def run(self, trials: Sequence[Trial]) -> None:
        """Trains these trials together, if all of their receipts can be claimed."""
        with ExitStack() as resources:
            self.train(self.claim(trials, resources))

    def claim(self, trials: Sequence[Trial], resources: ExitStack) -> list[Session]:
        """The sessions of these trials, all of whose receipts were claimed; `resources` has their locks and logs."""
        places = [self.folder.place(trial.id) for trial in trials]
        for place in places:
            resources.enter_context(working(place.files))
        if self.block.shared:
            self._refuse_apart(places)
        receipts = together(self._claiming(trial) for trial in trials)
        sessions = [
            Session(trial=trial, receipt=receipt, place=place)
            for trial, receipt, place in zip(trials, receipts, places, strict=True)
        ]
        for session in sessions:
            (session.place.files / "config.yaml").write_text(_in_yaml(session.trial.config))
            resources.enter_context(session.logged())
        return sessions

    def train(self, sessions: Sequence[Session]) -> None:
        """Trains claimed trials together."""
        run = _RUNNERS.get(name_of(sessions[0].trial.config["trainer"]), run_sessions)
        run(sessions, self.machine, self.should_stop, shared=self.block.shared)

    def run_in_turn(self) -> None:
        """Trains the due runs of a secret draw one by one, as its neighbours do, and ends when all of them do.

        Other users of the machine see processes, how long they live and how they compute. So this job lives as long as
        its neighbours, and works like them when no run is left for it.
        """
        while not self.should_stop():
            with ExitStack() as resources:
                with turn(self.folder.turn):
                    due = self._next_try()
                    sessions = [] if due is None else self.claim([due], resources)
                if not sessions:
                    break
                self.train(sessions)
        stand_by(self.plan.trials[0].config, self.machine, lambda: self.should_stop() or not self._neighbours_work())

    def _next_try(self) -> Trial | None:
        """The first run that has an unused receipt and may still change the winner, or the final run; None without.

        Receipts of ended runs are not read: a damaged one is no reason to train nothing.
        """
        tries, final, over = self._drawn()
        able = [one for one in (*(() if over else tries), final) if one is not None and not one.ended]
        return next((one.trial for one in able if _is_due(self.folder.place(one.trial.id))), None)

    def _neighbours_work(self) -> bool:
        """Whether a process trains a run of the draw now."""
        tries, final, _ = self._drawn()
        begun = [one for one in (*tries, final) if one is not None and one.begun and not one.ended]
        return any(at_work(self.folder.trial(one.trial.id)) for one in begun)

    def _drawn(self) -> tuple[tuple[DrawnTrial, ...], DrawnTrial | None, bool]:
        """The tries and the final run in their current states, and whether the search is over.

        A try that a killed process left has ended, although the coordinator marks it only after this launch.
        """
        search = SecretDraw(plan=self.plan, folder=self.folder)
        stored = search.stored
        if stored is None:
            raise NoReceipt(f"Nothing trains outside a charged sweep: {self.folder.root} holds no draw.")
        tries = tuple(
            replace(one, ended=True) if self._is_killed(one, stored.attempt) else one for one in search.tries(stored)
        )
        return tries, search.final_try(stored), stored.draw.over(scores_of(stored.draw, tries))

    def _is_killed(self, one: DrawnTrial, attempt: int) -> bool:
        """Whether a run began, has no result, and can no longer end."""
        if one.ended or not one.begun:
            return False
        return stage_of(self.folder.place(one.trial.id), one.trial, attempt) is AttemptState.KILLED

    def _claiming(self, trial: Trial) -> Flushing[Receipt]:
        files = self.folder.place(trial.id).files
        return Receipt.claiming(files, self.folder.private, plan=self.plan.id, trial=trial.id)

    def _refuse_apart(self, places: Sequence[TrialPlace]) -> None:
        """Raises `ContractBroken` if other trials of the same charge have taken further steps without these trials.

        On the same subsamples they are priced as one mechanism; on different subsamples they would cost more.
        """
        ours: dict[str, int] = {}
        for receipt in filter(None, (Receipt.read(place.files) for place in places)):
            ours[receipt.charge] = min(receipt.resume, ours.get(receipt.charge, receipt.resume))
        for place in {self.folder.place(trial.id) for trial in self.block.trials} - set(places):
            other = Receipt.read(place.files)
            if other is not None and stretches(place.record, other.attempt) > ours.get(other.charge, math.inf):
                raise ContractBroken(
                    f"Expected trial {place.name} to have the same number of steps as the runs that share its "
                    "subsamples: they are charged together and must train together. Start a new sweep, with a new "
                    "charge."
                )

    def turns(self, trials: Sequence[Trial]) -> Iterator[Sequence[Trial]]:
        """The groups of trials that are trained together, one group after another."""
        size = len(trials) if self.block.shared else max(1, at_once(trials[0].config))
        for first in range(0, len(trials), size):
            yield trials[first : first + size]


def run_block(config: DictConfig) -> None:
    """The Hydra task: trains the trials with receipts in a part of a block and writes their results."""
    if config.get("block") is None:
        raise NoReceipt(
            "Nothing trains outside a charged sweep: start one with `dpsweep sweep` "
            "(no hydra.mode=RUN, no other hydra/sweeper)."
        )
    job = HydraConfig.get()
    if config.get("store") is None:
        raise NoReceipt("Nothing trains outside a charged sweep: this job has no private store.")
    store = PrivateStore(root=Path(config.store))
    folder = SweepFolder(root=Path(job.runtime.cwd) / str(job.sweep.dir), store=store)
    with stop_requests(folder.stop) as should_stop:
        if not folder.plan.exists():
            raise NoReceipt(f"Nothing trains outside a charged sweep: {folder.root} holds no plan.json.")
        plan = Plan.read(folder.plan)
        workers = job.launcher.get("n_jobs", 1) or 1
        machine = Compute.of(config.compute).machine(
            data_folder(config.data), workers=workers if workers > 0 else os.cpu_count() or 1
        )
        _refuse_untrusted(plan, config.get("trusted") or ())
        find_user_modules(Path(job.runtime.cwd))
        if config.block == TRIES:
            block = Block(trials=search_of(plan, folder).runs())
            _Task(folder=folder, plan=plan, block=block, machine=machine, should_stop=should_stop).run_in_turn()
            return
        block = search_of(plan, folder).block(config.block)
        trials = part_of(block, config.part, config.parts)
        task = _Task(folder=folder, plan=plan, block=block, machine=machine, should_stop=should_stop)
        for group in task.turns([trial for trial in trials if _is_due(folder.place(trial.id))] or trials):
            if should_stop():
                return
            task.run(group)


def _in_yaml(config: Mapping[str, Any]) -> str:
    """A configuration as YAML."""
    return "".join(_part_in_yaml(json.dumps({key: part})) for key, part in config.items())


@lru_cache(maxsize=256)
def _part_in_yaml(form: str) -> str:
    """A part of a configuration as YAML, from its JSON: the points of a block share most parts."""
    text: str = yaml.dump(json.loads(form), Dumper=_DUMPER, sort_keys=False)
    return text


def _refuse_untrusted(plan: Plan, trusted: Collection[str]) -> None:
    """Raises `BadInput` if the plan names a class or script that is neither dpsweep's nor on the command line."""
    for name in sorted(plan.foreign_names - set(trusted)):
        raise BadInput(
            f"Expected {name} in plan {plan.id} to be a class of dpsweep or one that the sweep's command names: a "
            "folder is data, and no class is imported and no script run because a file names it."
        )


def _is_due(place: TrialPlace) -> bool:
    """Whether the trial in this folder has an unused receipt."""
    receipt = Receipt.read(place.files)
    return receipt is not None and not receipt.used(place)
