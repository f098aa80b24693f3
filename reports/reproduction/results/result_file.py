"""The results of a search as one compressed file that the repository keeps: no weights, no per-run logs.

Figures and verdicts on docs/reproduction.md are made from these files, so that anybody can make them again without
training. The file is JSON in xz; numbers have `DIGITS` significant digits.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from dpsweep.accounting.folders import READABLE, make_folder
from dpsweep.accounting.json_files import require_version
from dpsweep.reports.reproduction.results.search_results import RunCurve, RunPrice, SearchResults
from dpsweep.reports.reproduction.results.training_facts import TrainingFacts

SCHEMA, SUFFIX, DIGITS = 1, ".json.xz", 6
RESULTS = f"results{SUFFIX}"
"""The file in a figure's folder."""

LEFT_OUT = ("trial", "seconds", "device", "folder", "error", "attempts_charged", "attempts_started", "conduct", "gap")
"""Columns of a sweep's table that no figure reads. Runs are numbered instead of named."""

LOOKS = ("step", "test_accuracy", "training_accuracy", "training_loss")
"""What a figure reads of a learning curve."""


def write_results(results: SearchResults, file: Path) -> None:
    """Writes the file, in one rename."""
    form = {
        "schema": SCHEMA,
        "facts": results.facts.to_json(),
        "axes": list(results.axes),
        "quality": results.quality,
        "measure": results.measure,
        "prices": [asdict(price) for price in results.prices],
        "table": {str(name): list(map(_plain, results.table[name])) for name in results.table if name not in LEFT_OUT},
        "curves": [_looks(results.curve(trial)) for trial in results.table["trial"]],
    }
    data = lzma.compress(json.dumps(form, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME)
    make_folder(file.parent, READABLE)
    new = file.with_suffix(".new")
    new.write_bytes(data)
    new.replace(file)


def read_results(file: Path) -> SearchResults:
    """Reads `write_results`' file; raises `BadInput` if it is of another version."""
    form = json.loads(lzma.decompress(file.read_bytes()))
    require_version(f"schema in {file}", form.get("schema"), SCHEMA)
    runs = [str(place) for place in range(1, len(form["curves"]) + 1)]
    table = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in form["table"].items()})
    return SearchResults(
        table=table.assign(trial=runs),
        curves={run: _curve(looks) for run, looks in zip(runs, form["curves"], strict=True) if looks},
        axes=tuple(form["axes"]),
        quality=form["quality"],
        measure=form["measure"],
        prices=tuple(RunPrice(**price) for price in form["prices"]),
        facts=TrainingFacts.from_json(form["facts"]),
    )


def _looks(curve: RunCurve) -> dict[str, list[Any]]:
    """A learning curve by columns: what figures read of it."""
    kept = [name for name in LOOKS if any(name in look for look in curve)]
    return {name: [_plain(look.get(name)) for look in curve] for name in kept}


def _curve(looks: Mapping[str, Iterable[Any]]) -> RunCurve:
    return tuple(dict(zip(looks, values, strict=True)) for values in zip(*looks.values(), strict=True))


def _plain(value: Any) -> Any:
    """A value as JSON has it: numbers rounded, what is missing or not finite as null."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    item = getattr(value, "item", None)
    return value if item is None else _plain(item())
