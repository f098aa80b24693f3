"""TensorBoard: an event file for each run, with its hyperparameters and its score."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from dpsweep.sweeper.loggers.interface import LoggedRun, LoggedSweep


@dataclass(frozen=True, kw_only=True)
class TensorBoard:
    """Event files below `folder`, or below `tensorboard/` in the sweep's folder; `tensorboard --logdir` reads them.

    The HPARAMS page compares the runs. Nothing leaves this machine.
    """

    folder: str | None = None

    @property
    def title(self) -> str:
        """The library's name."""
        return "TensorBoard"

    @property
    def package(self) -> str:
        """The name of its package."""
        return "tensorboard"

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
