"""The work of a job under a secret draw: the tries one after another, as long as there is one.

Other users of the machine see processes, how long they live and how they compute. So there are as many jobs as workers,
whatever the draw; each lives as long as its neighbours, and works like them when no try is left for it. A job without
neighbours is the whole search: it also stores the winner, and makes the final run. A queue or a cluster lists that one
job and its length.

`ps` shows every user of a machine how long each process has computed and how much memory it takes. A worker that sat
idle would tell how many tries there are, so it trains on generated records of the same shape until its neighbours end.
Nothing of it is kept, and no private record is read.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from dpsweep.accounting import durable_files
from dpsweep.accounting.errors import BadInput, NoReceipt
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.searches.stored_draw import DrawnTrial, StoredDraw, scores_of
from dpsweep.sweeper.job.attempt_state import AttemptState, stage_of
from dpsweep.sweeper.job.hidden_search_log import HiddenSearchLog
from dpsweep.sweeper.job.job_task import JobTask, has_unused_receipt, write_receipt_in_group
from dpsweep.sweeper.job.locks import brief_lock, is_being_trained
from dpsweep.sweeper.trial.build import generated_dataset, load, make_model, make_run, new_secret_streams
from dpsweep.sweeper.trial.gradient_sums import gradient_sums
from dpsweep.sweeper.trial.session import Machine, log
from dpsweep.sweeper.trial.spec import FEATURES, declare
from dpsweep.trainers.methods.output_perturbation import OutputPerturbation

LOOK_SECONDS = 0.2
SIDE = 256
"""The side of the matrices of a worker that cannot train on generated records."""

COIN_BYTES = 32


def compute_until_over(config: Mapping[str, Any], machine: Machine, is_over: Callable[[], bool]) -> None:
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
            _train(config, machine, coins, should_end)
    except Exception as cause:  # noqa: BLE001 - a worker that failed to look busy has lost no run
        log.info("multiplies matrices while others train: %s", cause)
        _multiply(machine, should_end)


def _train(config: Mapping[str, Any], machine: Machine, coins: str, should_end: Callable[[], bool]) -> None:
    """Trains a run of this configuration on generated records; raises `BadInput` if there are none of its shape."""
    import torch

    from dpsweep.trainers.training.allocator import keep_freed_memory
    from dpsweep.trainers.training.loop import train_together

    if config.get(FEATURES):
        raise BadInput("Expected no frozen features: those of generated records would have to be computed.")
    config = {**config, "dataset": generated_dataset(config["dataset"], config["loss"])}
    declaration = declare(config)
    if isinstance(declaration.trainer, OutputPerturbation):
        raise BadInput("Expected a method that takes steps: a fit cannot be ended before its time.")
    torch.set_num_threads(machine.threads)
    keep_freed_memory()
    data = load(config, declaration.adjacency, None, coins)
    model, streams = make_model(config, secrets.token_hex()), [new_secret_streams()]
    with gradient_sums(config, declaration, [model], data.train, machine, streams) as sums:
        train_together(
            [make_run(config, declaration)],
            [model],
            sums,
            data.train,
            streams,
            device=machine.device,
            should_stop=should_end,
        )


def _multiply(machine: Machine, should_end: Callable[[], bool]) -> None:
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
    def search(self) -> SecretDraw:
        """The search of the plan."""
        return SecretDraw(plan=self.task.plan, folder=self.task.folder)

    def run(self) -> None:
        """Trains the due runs one by one, and ends when the neighbours' runs have ended."""
        task = self.task
        self._run_due()
        if self.alone and not task.should_stop():
            with brief_lock(task.folder.turn):
                self._begin_final()
            self._run_due()
        compute_until_over(
            task.plan.trials[0].config, task.machine, lambda: task.should_stop() or not self._neighbours_work()
        )

    def _run_due(self) -> None:
        while not self.task.should_stop():
            with ExitStack() as resources:
                with brief_lock(self.task.folder.turn):
                    due = self._next_try()
                    sessions = [] if due is None else self.task.claim([due], resources)
                if not sessions:
                    break
                self.task.train(sessions)

    def _begin_final(self) -> None:
        """Stores the winner if no try is left, and hands out the receipt of the final run, if the rule has one.

        It is that of this launch, which every try has: the search is one attempt in the ledger.
        """
        receipt = self._receipt()
        if receipt is None:
            return
        log = HiddenSearchLog(search=self.search, stored=self._stored, receipt=receipt)
        log.settle()
        for final in log.start(log.next_final(1)):
            durable_files.alone(write_receipt_in_group(final, self.task.folder.trial(final.trial)))

    def _receipt(self) -> Receipt | None:
        """A receipt of this launch; None if no try has one."""
        store = self.task.folder.private
        for trial in self.search.search_runs():
            try:
                receipt = Receipt.read(self.task.folder.trial(trial.id))
            except NoReceipt:
                continue  # a damaged one
            if receipt is not None and store.is_current(receipt.launch):
                return receipt
        return None

    def _next_try(self) -> Trial | None:
        """The first run that has an unused receipt and may still change the winner, or the final run; None without.

        Receipts of ended runs are not read: a damaged one is no reason to train nothing.
        """
        tries, final, over = self._tries_and_final_run()
        able = [one for one in (*(() if over else tries), final) if one is not None and not one.ended]
        return next((one.trial for one in able if has_unused_receipt(self.task.folder.place(one.trial.id))), None)

    def _neighbours_work(self) -> bool:
        """Whether a process trains a run of the draw now."""
        tries, final, _ = self._tries_and_final_run()
        begun = [one for one in (*tries, final) if one is not None and one.begun and not one.ended]
        return any(is_being_trained(self.task.folder.trial(one.trial.id)) for one in begun)

    @property
    def _stored(self) -> StoredDraw:
        stored = self.search.stored
        if stored is None:
            raise NoReceipt(f"Nothing trains outside a charged sweep: {self.task.folder.root} holds no draw.")
        return stored

    def _tries_and_final_run(self) -> tuple[tuple[DrawnTrial, ...], DrawnTrial | None, bool]:
        """The tries and the final run in their current states, and whether the search is over.

        A try that a killed process left has ended, although the coordinator marks it only after this launch.
        """
        stored = self._stored
        tries = tuple(
            replace(one, ended=True) if self._is_killed(one, stored.attempt) else one
            for one in self.search.tries(stored)
        )
        return tries, self.search.final_try(stored), stored.draw.over(scores_of(stored.draw, tries))

    def _is_killed(self, one: DrawnTrial, attempt: int) -> bool:
        """Whether a run began, has no result, and can no longer end."""
        if one.ended or not one.begun:
            return False
        return stage_of(self.task.folder.place(one.trial.id), one.trial, attempt) is AttemptState.KILLED
