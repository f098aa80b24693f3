"""The Hydra task of a job: it claims the receipts of a block's trials and trains them.

The card of a sweep is a job too, after all others: it reads a sealed part once, for the claimed model.

The task refuses to train unless its block is in a charged plan and each of its trials has an unused receipt. So a stale
plan, an edited point, and any call that bypasses `sweeper/commands/hydra_app.py` end here with one sentence.

A job that is asked to stop starts no further trials: the running trials finish their step and leave a checkpoint and no
result, and another job may continue them on receipts to resume. A process that dies leaves its last checkpoints; its
later steps are lost and stay charged.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from dpsweep.accounting.errors import BadInput, NoReceipt
from dpsweep.accounting.ledger.permit import PrivateStore
from dpsweep.accounting.records.plan import Block, Plan
from dpsweep.accounting.records.sweep_folder import DEVICES, SweepFolder, shared_folder
from dpsweep.accounting.searches.interface import search_for_plan
from dpsweep.sweeper.job.devices import lease_devices_for_process
from dpsweep.sweeper.job.job_task import JobTask, has_unused_receipt
from dpsweep.sweeper.job.machine import Compute, data_folder_from_typed_name
from dpsweep.sweeper.job.secret_tries import TriesInTurn
from dpsweep.sweeper.job.stop_requests import stop_request_checker
from dpsweep.sweeper.trial.blocks import CARD, TRIES, points_in_part_of_block
from dpsweep.sweeper.trial.card import read_part_and_write_card
from dpsweep.trainers.user_modules import set_folder_of_user_modules


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
    with stop_request_checker(folder.stop_file_path) as should_stop:
        if not folder.plan_path.exists():
            raise NoReceipt(f"Nothing trains outside a charged sweep: {folder.root} holds no plan.json.")
        plan = Plan.read(folder.plan_path)
        workers = job.launcher.get("n_jobs", 1) or 1
        compute = Compute.from_config(config.compute)
        if not lease_devices_for_process(compute, shared_folder(store, DEVICES), should_stop):
            return
        machine = compute.machine_of_worker_process(
            data_folder_from_typed_name(config.data), workers=workers if workers > 0 else os.cpu_count() or 1
        )
        _refuse_untrusted_classes(plan, config.get("trusted") or ())
        set_folder_of_user_modules(Path(job.runtime.cwd), config.get("trusted") or ())
        search = search_for_plan(plan, folder)
        if config.block == CARD:
            read_part_and_write_card(plan, folder, config.part, machine)
            return
        if config.block == TRIES:
            block = Block(trials=search.search_and_final_runs())
            task = JobTask(folder=folder, plan=plan, block=block, machine=machine, should_stop=should_stop)
            TriesInTurn(task=task, alone=config.parts == 1).train_due_runs_one_by_one()
            return
        block = search.block_with_id(config.block)
        trials = points_in_part_of_block(block, config.part, config.parts)
        task = JobTask(folder=folder, plan=plan, block=block, machine=machine, should_stop=should_stop)
        for group in task.groups_trained_together(
            [trial for trial in trials if has_unused_receipt(folder.trial_folder_and_private_record(trial.id))]
            or trials
        ):
            if should_stop():
                return
            task.claim_and_train_trials(group)


def _refuse_untrusted_classes(plan: Plan, trusted: Collection[str]) -> None:
    """Raises `BadInput` if the plan names a class or script that is neither dpsweep's nor on the command line."""
    for name in sorted(plan.names_of_user_classes_and_scripts - set(trusted)):
        raise BadInput(
            f"Expected {name} in plan {plan.id} to be a class of dpsweep or one that the sweep's command names: a "
            "folder is data, and no class is imported and no script run because a file names it."
        )
