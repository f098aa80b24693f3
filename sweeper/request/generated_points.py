"""The points of a rehearsal: those of the command, with generated records in place of the data set's.

The shape of the records comes from the resolved configuration alone. A data set of dpsweep's is declared once, so that
its mistakes are found, which opens no file; no class of the user's is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.names.stored_classes import KIND, name_of
from dpsweep.accounting.rehearsal import GENERATED, PREFIX
from dpsweep.sweeper.planning.point import Point
from dpsweep.sweeper.trial.spec import build, declare
from dpsweep.trainers.declarations.next_token import per_position

NEEDED = ("name", "records", "shape", "classes", "unit")
TAKEN = ("test_records", "public", "vocabulary", "unit_column", "units", "contribution_cap")
"""The keys of a data set that generated records have too: those that must be given, and those that may be."""


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


def generated_dataset(dataset: Mapping[str, Any], loss: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of generated records in the shape of a data set; raises `BadInput` with the missing keys."""
    if missing := [f"dataset.{key}" for key in NEEDED if dataset.get(key) is None]:
        raise BadInput(
            f"Expected {', '.join(missing)} in the configuration of this data set: a rehearsal generates its records "
            "from them alone, and opens no file."
        )
    given = {key: dataset[key] for key in (*NEEDED, *TAKEN) if dataset.get(key) is not None}
    sequences = {"per_position": True} if per_position(build(loss, "loss")) else {}
    return {KIND: GENERATED, "test_records": 0, **given, **sequences, "name": f"{PREFIX}{dataset['name']}"}
