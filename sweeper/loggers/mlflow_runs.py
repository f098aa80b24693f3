"""MLflow: a run for each run of the sweep, in an experiment for each data set."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from dpsweep.sweeper.loggers.interface import LoggedRun, LoggedSweep


@dataclass(frozen=True, kw_only=True)
class MlFlow:
    """Runs in the tracking store `uri`; with the default, `mlflow ui` in the same folder shows them.

    The experiment is `experiment`, or `dpsweep/DATA SET`. Runs are made by MLflow's client, which adds no user, host,
    command or commit of its own.
    """

    uri: str = "sqlite:///mlflow.db"
    experiment: str | None = None

    @property
    def title(self) -> str:
        """The library's name."""
        return "MLflow"

    @property
    def package(self) -> str:
        """The name of its package."""
        return "mlflow"

    def write(self, run: LoggedRun, sweep: LoggedSweep, folder: Path) -> None:
        """One finished run with parameters, metrics and tags."""
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        for library in ("mlflow", "alembic"):
            logging.getLogger(library).setLevel(logging.WARNING)  # else they report the creation of tables
        client = MlflowClient(tracking_uri=self.uri)
        name = self.experiment or f"dpsweep/{sweep.data_set}"
        known = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if known is None else known.experiment_id
        created = client.create_run(experiment, run_name=run.name, tags={**sweep.facts, "dpsweep.run": run.key})
        logged = created.info.run_id
        params = [Param(key, str(value)) for key, value in run.hyperparameters.items()]
        metrics = [Metric(key, score, created.info.start_time, 0) for key, score in run.scores.items()]
        client.log_batch(logged, metrics=metrics, params=params)
        client.set_terminated(logged, end_time=created.info.start_time)
