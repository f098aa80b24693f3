"""One run that is trained alone by an engine, as most tests of the loop want it."""

from __future__ import annotations

from typing import Any

from torch import nn

from dpsweep.trainers.data.records import Records
from dpsweep.trainers.engines.interface import Engine
from dpsweep.trainers.randomness import Streams
from dpsweep.trainers.training.gradient_sums import EngineSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Journal, Outcome, Progress, Run


def train(
    run: Run,
    model: nn.Module,
    engine: Engine,
    records: Records,
    streams: Streams,
    *,
    device: str,
    chunk: int | None = None,
    journal: Journal | None = None,
    since: Progress | None = None,
    **settings: Any,
) -> Outcome:
    """Trains `model` in place by `train_together`, which the other settings are for."""
    sums = EngineSums(models=[model], engine=engine, records=records.to(device), device=device, chunk=chunk)
    journals = None if journal is None else [journal]
    (outcome,) = train_together(
        [run], [model], sums, records, [streams], device=device, journals=journals, since=[since], **settings
    )
    return outcome
