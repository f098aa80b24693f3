"""Inside a job: from a block to the sessions of its trials.

The task refuses to train unless its block is in a plan that was charged and each of its trials holds an unused receipt:
a stale plan and an edited point end here with one sentence, and so does whatever gets past
`sweeper/commands/hydra_door.py`.

A job that is asked to stop takes nothing more up: the trials at work finish their step, leave a checkpoint and no
result, and another job may go on with them, on receipts to resume. A process that dies leaves its last checkpoints;
what it did after those is lost and counts as done.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from dpsweep.accounting.errors import BadInput, ContractBroken, NoReceipt
from dpsweep.accounting.ledger.private_store import PrivateStore, TrialPlace
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.accounting.records.step_log import stretches
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.sweeper.job.locks import working
from dpsweep.sweeper.job.machine import Compute, data_folder
from dpsweep.sweeper.job.stop_requests import stop_requests
from dpsweep.sweeper.trial.blocks import at_once, part_of
from dpsweep.sweeper.trial.run import run_sessions
from dpsweep.sweeper.trial.session import Machine, Session

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C, ten times quicker, wherever PyYAML was built with it


@dataclass(frozen=True, kw_only=True)
class _Task:
    """What a job works on, and until when."""

    folder: SweepFolder
    plan: Plan
    block: Block
    machine: Machine
    should_stop: Callable[[], bool]

    def run(self, trials: Sequence[Trial]) -> None:
        """Trains these trials at once, where all of them can be claimed."""
        with ExitStack() as held:
            places = [self.folder.place(trial.id) for trial in trials]
            for place in places:
                held.enter_context(working(place.files))
            if self.block.shared:
                self._refuse_apart(places)
            receipts = [
                Receipt.claim(place.files, self.folder.private, plan=self.plan.id, trial=trial.id)
                for trial, place in zip(trials, places, strict=True)
            ]
            sessions = [
                Session(trial=trial, receipt=receipt, place=place)
                for trial, receipt, place in zip(trials, receipts, places, strict=True)
            ]
            for session in sessions:
                form = yaml.dump(dict(session.trial.config), Dumper=_DUMPER, sort_keys=False)
                (session.place.files / "config.yaml").write_text(form)
                held.enter_context(session.logged())
            run_sessions(sessions, self.machine, self.should_stop, shared=self.block.shared)

    def _refuse_apart(self, places: Sequence[TrialPlace]) -> None:
        """Raises `ContractBroken` where others, paid for by the same charge, have gone on without these.

        On the same subsamples they were one mechanism; on two subsamples they would be more than was paid for.
        """
        ours: dict[str, int] = {}
        for receipt in filter(None, (Receipt.read(place.files) for place in places)):
            ours[receipt.charge] = min(receipt.resume, ours.get(receipt.charge, receipt.resume))
        for place in {self.folder.place(trial.id) for trial in self.block.trials} - set(places):
            other = Receipt.read(place.files)
            if other is not None and stretches(place.record, other.attempt) > ours.get(other.charge, math.inf):
                raise ContractBroken(
                    f"Expected trial {place.name} not to have gone on without runs that were charged for the same "
                    "subsamples as it: they do not train apart from it. Another sweep is another charge."
                )

    def turns(self, trials: Sequence[Trial]) -> Iterator[Sequence[Trial]]:
        """The trials that are trained at once, one turn after another."""
        size = len(trials) if self.block.shared else max(1, at_once(trials[0].config))
        for first in range(0, len(trials), size):
            yield trials[first : first + size]


def run_block(config: DictConfig) -> None:
    """The Hydra task: trains those of a part of a block that hold receipts, and writes their results."""
    if config.get("block") is None:
        raise NoReceipt(
            "Nothing trains outside a charged sweep: start one with `python -m sweeper` "
            "(no hydra.mode=RUN, no other hydra/sweeper)."
        )
    job = HydraConfig.get()
    if config.get("store") is None:
        raise NoReceipt("Nothing trains outside a charged sweep: this job was told of no private store.")
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
        block = folder.block(plan, config.block)
        trials = part_of(block, config.part, config.parts)
        task = _Task(folder=folder, plan=plan, block=block, machine=machine, should_stop=should_stop)
        for turn in task.turns([trial for trial in trials if _is_due(folder.place(trial.id))] or trials):
            if should_stop():
                return
            task.run(turn)


def _refuse_untrusted(plan: Plan, trusted: Collection[str]) -> None:
    """Raises `BadInput` where the plan names a class that is neither ours nor one that the command line named."""
    for name in sorted(plan.foreign_names - set(trusted)):
        raise BadInput(
            f"Expected {name} in plan {plan.id} to be one of our classes or one that the sweep's own command named: a "
            "folder is data, and nothing in it is imported."
        )


def _is_due(place: TrialPlace) -> bool:
    """Whether the trial in this folder holds a receipt that nobody has taken."""
    receipt = Receipt.read(place.files)
    return receipt is not None and not receipt.used(place)
