"""Weights & Biases: a run for each run of the sweep, offline unless `mode=online` is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpsweep.sweeper.loggers.interface import LoggedRun, LoggedSweep

MODES = ("offline", "online")


@dataclass(frozen=True, kw_only=True)
class Wandb:
    """Runs in `project`, or `dpsweep-DATA SET`, of `entity`, or your default one, in one group for each plan.

    With `mode=offline` the runs stay in `wandb/` in the sweep's folder until `wandb sync` sends them. What W&B gathers
    on its own is off: console, code, git, machine, loads, packages.
    """

    mode: str = "offline"
    project: str | None = None
    entity: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"Expected mode={self.mode} to be one of {', '.join(MODES)}.")

    @property
    def title(self) -> str:
        """The library's name."""
        return "Weights & Biases"

    @property
    def package(self) -> str:
        """The name of its package."""
        return "wandb"

    def write(self, run: LoggedRun, sweep: LoggedSweep, folder: Path) -> None:
        """One finished run with its configuration, summary and tags."""
        import wandb

        settings = wandb.Settings(
            mode=self.mode,
            silent=True,
            console="off",
            program="",
            save_code=False,
            disable_code=True,
            disable_git=True,
            disable_job_creation=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        )
        with wandb.init(
            project=self.project or f"dpsweep-{sweep.data_set}",
            entity=self.entity,
            group=sweep.plan,
            name=run.name,
            id=run.key,
            tags=["dpsweep", sweep.mark.value],
            config={**run.hyperparameters, **sweep.facts},
            dir=str(folder),
            settings=settings,
            reinit="create_new",
        ) as logged:
            logged.log(dict(run.scores))
