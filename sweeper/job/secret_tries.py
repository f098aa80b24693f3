"""The work of a job under a secret draw: the tries one after another, as long as there is one.

Other users of the machine see processes, how long they live and how they compute. So there are as many jobs as workers,
whatever the draw; each lives as long as its neighbours, and works like them when no try is left for it. A job without
neighbours is the whole search: it also stores the winner, and makes the final run. A queue or a cluster lists that one
job and its length.

`ps` shows every user of a machine how long each process has computed and how much memory it takes. A worker that sat
idle would tell how many tries there are, so it trains on generated records of the same shape until its neighbours end.
Nothing of it is kept, and no private record is read. A worker that takes no run at all trains once in this way, as if
there had been one: it may follow one that died, and its length would tell whether that one was at the last try.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from dpsweep.accounting.errors import BadInput, NoReceipt
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.searches.stored_draw import (
    COIN_BYTES,
    DrawnTrial,
    StoredDraw,
    compared_score_by_index_of_ended_try,
)
from dpsweep.sweeper.job.attempt_state import AttemptState, state_of_started_attempt
from dpsweep.sweeper.job.hidden_search_log import HiddenSearchLog
from dpsweep.sweeper.job.job_task import JobTask, has_unused_receipt, write_receipt
from dpsweep.sweeper.job.locks import brief_lock, is_being_trained
from dpsweep.sweeper.trial.build import (
    config_of_generated_records_like_dataset,
    make_model,
    make_training_run,
    new_secret_streams,
)
from dpsweep.sweeper.trial.gradient_sums import stacked_or_engine_gradient_sums
from dpsweep.sweeper.trial.session import Machine, log
from dpsweep.sweeper.trial.spec import FEATURES, declaration_from_config
from dpsweep.trainers.methods.output_perturbation import OutputPerturbation
from dpsweep.trainers.training.run_records import RecordStore

LOOK_SECONDS = 0.2
SIDE = 256
"""The side of the matrices of a worker that cannot train on generated records."""


def imitate_training_until_search_over(
    config: Mapping[str, Any], machine: Machine, is_over: Callable[[], bool]
) -> None:
    """Computes as a training of this configuration does until `is_over`, which is asked every `LOOK_SECONDS`.

    Where records of this shape cannot be generated it multiplies matrices: its processor time is that of a training,
    and its memory is not.
    """
    asked, over = time.monotonic(), is_over()
    coins = secrets.token_hex(COIN_BYTES)  # one part of the records for all trainings, which generate them once

    def should_end() -> bool:
        nonlocal asked, over
        if not over and (now := time.monotonic()) - asked >= LOOK_SECONDS:
            asked, over = now, is_over()
        return over

    if over:
        return
    try:
        while not should_end():
            _train_on_generated_records(config, machine, coins, should_end)
    except Exception as cause:  # noqa: BLE001 - a worker that failed to look busy has lost no run
        log.info("multiplies matrices while others train: %s", cause)
        _multiply_matrices_until_end(machine, should_end)


def imitate_one_training(config: Mapping[str, Any], machine: Machine, should_stop: Callable[[], bool]) -> None:
    """Does what one training of this configuration does; nothing where records of its shape cannot be generated."""
    try:
        _train_on_generated_records(config, machine, secrets.token_hex(COIN_BYTES), should_stop)
    except Exception as cause:  # noqa: BLE001 - as above
        log.info("trains nothing: %s", cause)


def _train_on_generated_records(
    config: Mapping[str, Any], machine: Machine, coins: str, should_end: Callable[[], bool]
) -> None:
    """Trains a run of this configuration on generated records; raises `BadInput` if there are none of its shape."""
    import torch

    from dpsweep.trainers.training.allocator import keep_freed_memory
    from dpsweep.trainers.training.loop import train_together

    if config.get(FEATURES):
        raise BadInput("Expected no frozen features: those of generated records would have to be computed.")
    if declaration_from_config(config).dataset.on_disk:
        raise BadInput("Expected records that fit into memory: generated ones are not read from disk.")
    config = {**config, "dataset": config_of_generated_records_like_dataset(config["dataset"], config["loss"])}
    declaration = declaration_from_config(config)
    if isinstance(declaration.trainer, OutputPerturbation):
        raise BadInput("Expected a method that takes steps: a fit cannot be ended before its time.")
    torch.set_num_threads(machine.threads)
    keep_freed_memory()
    data = declaration.records.open_split(None, RecordStore(folder=None, coins=coins))
    model, streams = make_model(config, secrets.token_hex()), [new_secret_streams()]
    sums = stacked_or_engine_gradient_sums(config, declaration, [model], data.train, machine, streams)
    train_together(
        [make_training_run(config, declaration)],
        [model],
        sums,
        data.train,
        streams,
        device=machine.device,
        should_stop=should_end,
    )


def _multiply_matrices_until_end(machine: Machine, should_end: Callable[[], bool]) -> None:
    """Multiplies matrices with the threads of a training."""
    import torch

    torch.set_num_threads(machine.threads)
    matrix = torch.eye(SIDE, device=machine.device)
    while not should_end():
        matrix = matrix @ matrix


@dataclass(frozen=True, kw_only=True)
class TriesInTurn:
    """One job's share of the tries; with `alone` it is the only job of the search."""

    task: JobTask
    alone: bool

    @property
    def secret_draw(self) -> SecretDraw:
        """The search of the plan."""
        return SecretDraw(plan=self.task.plan, folder=self.task.folder)

    def train_due_runs_one_by_one(self) -> None:
        """Trains the due runs one by one, and ends when the neighbours' runs have ended."""
        task = self.task
        number_of_runs = self._claim_and_train_due_runs_and_count_them()
        if self.alone and not task.should_stop():
            with brief_lock(task.folder.next_try_lock_path):
                self._store_winner_and_issue_final_receipt()
            number_of_runs += self._claim_and_train_due_runs_and_count_them()
        if not number_of_runs:
            imitate_one_training(task.plan.trials[0].config, task.machine, task.should_stop)
        imitate_training_until_search_over(
            task.plan.trials[0].config, task.machine, lambda: task.should_stop() or not self._is_any_run_being_trained()
        )

    def _claim_and_train_due_runs_and_count_them(self) -> int:
        number_of_runs = 0
        while not self.task.should_stop():
            with ExitStack() as resources:
                with brief_lock(self.task.folder.next_try_lock_path):
                    due = self._next_due_try_or_final_run()
                    sessions = [] if due is None else self.task.claim_receipts_and_open_sessions([due], resources)
                if not sessions:
                    break
                number_of_runs += 1
                self.task.train_claimed_trials(sessions)
        return number_of_runs

    def _store_winner_and_issue_final_receipt(self) -> None:
        """Stores the winner if no try is left, and hands out the receipt of the final run, if the rule has one.

        It is that of this launch, which every try has: the search is one attempt in the ledger.
        """
        receipt = self._any_receipt_of_this_launch_or_none()
        if receipt is None:
            return
        log = HiddenSearchLog(search=self.secret_draw, stored=self._stored_draw, receipt=receipt)
        log.record_ended_attempts()
        for final in log.start_and_issue_receipts(log.final_run_if_due(1)):
            write_receipt(final, self.task.folder.trial_folder(final.trial))

    def _any_receipt_of_this_launch_or_none(self) -> Receipt | None:
        """A receipt of this launch; None if no try has one."""
        store = self.task.folder.private_store
        for trial in self.secret_draw.search_trials_so_far():
            try:
                receipt = Receipt.read(self.task.folder.trial_folder(trial.id))
            except NoReceipt:
                continue  # a damaged one
            if receipt is not None and store.is_current_launch(receipt.launch):
                return receipt
        return None

    def _next_due_try_or_final_run(self) -> Trial | None:
        """The first run that has an unused receipt and may still change the winner, or the final run; None without.

        Receipts of ended runs are not read: a damaged one is no reason to train nothing.
        """
        tries, final, over = self._tries_final_run_and_whether_over()
        able = [one for one in (*(() if over else tries), final) if one is not None and not one.ended]
        folder = self.task.folder
        due = (one.trial for one in able if has_unused_receipt(folder.trial_folder_and_private_record(one.trial.id)))
        return next(due, None)

    def _is_any_run_being_trained(self) -> bool:
        """Whether a process trains a run of the draw now."""
        tries, final, _ = self._tries_final_run_and_whether_over()
        begun = [one for one in (*tries, final) if one is not None and one.begun and not one.ended]
        return any(is_being_trained(self.task.folder.trial_folder(one.trial.id)) for one in begun)

    @property
    def _stored_draw(self) -> StoredDraw:
        stored = self.secret_draw.stored_draw
        if stored is None:
            raise NoReceipt(f"Nothing trains outside a charged sweep: {self.task.folder.root} holds no draw.")
        return stored

    def _tries_final_run_and_whether_over(self) -> tuple[tuple[DrawnTrial, ...], DrawnTrial | None, bool]:
        """The tries and the final run in their current states, and whether the search is over.

        A try that a killed process left has ended, although the coordinator marks it only after this launch.
        """
        stored = self._stored_draw
        tries = tuple(
            replace(one, ended=True) if self._is_run_killed(one, stored.attempt) else one
            for one in self.secret_draw.states_of_tries(stored)
        )
        return (
            tries,
            self.secret_draw.state_of_final_run(stored),
            stored.draw.over(compared_score_by_index_of_ended_try(stored.draw, tries)),
        )

    def _is_run_killed(self, one: DrawnTrial, attempt: int) -> bool:
        """Whether a run began, has no result, and can no longer end."""
        if one.ended or not one.begun:
            return False
        return (
            state_of_started_attempt(self.task.folder.trial_folder_and_private_record(one.trial.id), one.trial, attempt)
            is AttemptState.KILLED
        )
