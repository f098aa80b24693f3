"""Our loggers: MLflow, TensorBoard, and Weights & Biases, which is offline unless `mode=online` is given.

Each writes a run for each run of the sweep.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dpsweep.sweeper.loggers.interface import LoggedRun, LoggedSweep


@dataclass(frozen=True, kw_only=True)
class MlFlow:
    """Runs in the tracking store `uri`; with the default, the file `mlflow.db`, which the user alone can read.

    `mlflow ui` in the same folder shows them. It is a part of MLflow whole, not of `mlflow-skinny`, which writes them.
    The experiment is `experiment`, or `dpsweep/DATA SET`. Runs are made by MLflow's client, which adds no user, host,
    command or commit of its own.
    """

    title: ClassVar[str] = "MLflow"
    package: ClassVar[str] = "mlflow"
    uri: str = "sqlite:///mlflow.db"
    experiment: str | None = None

    def write(self, run: LoggedRun, sweep: LoggedSweep, folder: Path) -> None:
        """One finished run with parameters, metrics and tags."""
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        for library in ("mlflow", "alembic"):
            logging.getLogger(library).setLevel(logging.WARNING)  # else they report the creation of tables
        _create_private_file_of_sqlite_uri(self.uri)
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


def _create_private_file_of_sqlite_uri(uri: str) -> None:
    """Creates the file of a new SQLite store for its owner alone; SQLite would let everybody read it."""
    name = uri.removeprefix("sqlite:///").partition("?")[0]
    if uri.startswith("sqlite:///") and name not in ("", ":memory:"):
        Path(name).touch(mode=0o600)


@dataclass(frozen=True, kw_only=True)
class TensorBoard:
    """Event files below `folder`, or below `tensorboard/` in the sweep's folder; `tensorboard --logdir` reads them.

    The HPARAMS page compares the runs. Nothing leaves this machine.
    """

    title: ClassVar[str] = "TensorBoard"
    package: ClassVar[str] = "tensorboard"
    folder: str | None = None

    def write(self, run: LoggedRun, sweep: LoggedSweep, folder: Path) -> None:
        """One event file in a folder of its own."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.plugins.hparams import summary_v2 as hparams
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        now = time.time()
        below = folder / "tensorboard" if self.folder is None else Path(self.folder).expanduser()
        writer = EventFileWriter(str(below / run.key))
        texts = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        values = [
            *(Summary.Value(tag=name, simple_value=score) for name, score in run.scores.items()),
            *(
                Summary.Value(
                    tag=name, metadata=texts, tensor=TensorProto(dtype="DT_STRING", string_val=[text.encode()])
                )
                for name, text in sweep.facts.items()
            ),
        ]
        try:
            declared = hparams.hparams_pb(dict(run.hyperparameters), trial_id=run.key, start_time_secs=now)
            writer.add_event(Event(wall_time=now, summary=Summary.FromString(declared.SerializeToString())))
            writer.add_event(Event(wall_time=now, summary=Summary(value=values)))
        finally:
            writer.close()


MODES = ("offline", "online")


@dataclass(frozen=True, kw_only=True)
class Wandb:
    """Runs in `project`, or `dpsweep-DATA SET`, of `entity`, or your default one, in one group for each plan.

    With `mode=offline` the runs stay in `wandb/` in the sweep's folder until `wandb sync` sends them. What W&B gathers
    on its own is off: console, code, git, machine, loads, packages.
    """

    title: ClassVar[str] = "Weights & Biases"
    package: ClassVar[str] = "wandb"
    mode: str = "offline"
    project: str | None = None
    entity: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"Expected mode={self.mode} to be one of {', '.join(MODES)}.")

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
