"""Runs the trials of an admitted plan through Hydra's launcher, a wave at a time.

Every attempt is marked as started before it is launched, so a wave holds no more jobs than the launcher
runs at once: what was never launched never counts as started. Results come back as files, so a lost worker costs no
finished trial.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from accounting.errors import ContractBroken, DpsweepError
from accounting.plan import Block, Plan, Trial
from accounting.result import RESULT_FILE, TrialResult
from sweeper.books import Book
from sweeper.folder import SweepFolder


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A plan, its folder and book, and the launcher that Hydra was configured with."""

    plan: Plan
    folder: SweepFolder
    book: Book
    context: HydraContext
    task: TaskFunction
    config: DictConfig
    wave: int

    def run(self, trials: Sequence[Trial]) -> tuple[str, ...]:
        """Runs one attempt at each trial and returns what launchers complained of; trials of one block run together."""
        wanted = {trial.id for trial in trials}
        blocks = [block for block in self.folder.blocks(self.plan) if any(trial.id in wanted for trial in block.trials)]
        OmegaConf.update(self.config, "hydra.sweep.dir", str(self.folder.root))
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=self.context, task_function=self.task, config=self.config
        )
        complaints: list[str] = []
        for start in range(0, len(blocks), self.wave):
            complaints += self._launch(launcher, blocks[start : start + self.wave], start)
        return tuple(complaints)

    def _launch(self, launcher: Any, blocks: Sequence[Block], first: int) -> list[str]:
        receipts = self.book.start([trial for block in blocks for trial in block.trials])
        started = {receipt.trial for receipt in receipts}
        blocks = [block for block in blocks if all(trial.id in started for trial in block.trials)]
        if not blocks:
            return []
        for receipt in receipts:
            place = self.folder.trial(receipt.trial)
            _put_aside(place, receipt.attempt - 1)
            receipt.write(place)
        complaints = []
        try:
            for job in launcher.launch([self._overrides(block) for block in blocks], initial_job_idx=first):
                _ = job.return_value
        except DpsweepError as refusal:
            raise ContractBroken(f"A job refused its block, which stays charged: {refusal}") from refusal
        except Exception as cause:  # noqa: BLE001 - a dead worker must not lose its neighbours' results
            complaints.append(f"{type(cause).__name__}: {cause}".splitlines()[0])
        self.book.settle(receipts)
        return complaints

    def _overrides(self, block: Block) -> list[str]:
        """What a job needs to find its block; everything about the trial itself stands in the plan."""
        compute = {f"compute.{key}": self.config.compute[key] for key in self.config.compute}
        return overrides(
            {
                "plan": self.plan.id,
                "block": block.id,
                "hydra.sweep.dir": str(self.folder.root),
                "data": self.config.data,
                **compute,
            }
        )


def wave_size(config: DictConfig, max_batch_size: int | None) -> int:
    """How many jobs to launch at once: the given number, or the launcher's workers."""
    if max_batch_size is not None:
        return max(1, max_batch_size)
    workers = config.hydra.launcher.get("n_jobs", 1) or 1
    return workers if workers > 0 else os.cpu_count() or 1


def results(trials: Sequence[Trial], folder: SweepFolder) -> tuple[TrialResult, ...]:
    """The results that these trials have so far."""
    read = (TrialResult.read(folder.trial(trial.id)) for trial in trials)
    return tuple(result for result in read if result is not None)


def _put_aside(place: Any, attempt: int) -> None:
    """Keeps the result of an earlier attempt beside the new one."""
    if (place / RESULT_FILE).exists():
        (place / RESULT_FILE).rename(place / f"result-{attempt}.json")


def overrides(values: Mapping[str, str | int | None]) -> list[str]:
    """Hydra overrides that give back exactly these values; text is quoted: 488993726622 and 12e45 are names."""
    return [f"{key}={_literal(value)}" for key, value in values.items()]


def _literal(value: str | int | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return QuotedString(text=value, quote=Quote.single).with_quotes()
    return str(value)
