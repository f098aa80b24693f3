"""The points of a rehearsal: those of the command, with generated records in place of the data set's.

The shape of the records comes from the resolved configuration alone. A data set of dpsweep's is declared once, so that
its mistakes are found, which opens no file; no class of the user's is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.names.stored_classes import KIND, name_of
from dpsweep.accounting.rehearsal import GENERATED
from dpsweep.sweeper.planning.point import Point
from dpsweep.sweeper.trial.build import generated_dataset
from dpsweep.sweeper.trial.spec import declare


def on_generated_records(points: Iterable[Point]) -> Iterator[Point]:
    """The points on generated records; raises `BadInput` with the keys of the data set that are missing for that."""
    for place, point in enumerate(points):
        dataset = point.config["dataset"]
        if KIND in dataset and place == 0:
            declare(point.config)
        yield replace(point, config={**point.config, "dataset": generated_dataset(dataset, point.config["loss"])})


def refuse_generated(points: Iterable[Point]) -> Iterator[Point]:
    """The points, unless one declares generated records: only a rehearsal trains on them."""
    for point in points:
        if name_of(point.config["dataset"]) == GENERATED:
            raise BadInput("Expected the records of a data set: generated ones are for `dpsweep rehearse` alone.")
        yield point
