"""The results of a search as its figure reads them: a table of runs, learning curves, prices, and facts of the search.

They are kept in one compressed file a figure, JSON in xz with numbers of `DIGITS` significant digits, without weights
and logs of runs. Figures and verdicts on docs/reproduction.md are made from these files, so that anybody can make them
again without training.

A look is what a run scored in the course of training. A look at a public test set costs nothing, so one run of 10,000
steps shows what a hundred runs of every length would. Looks of one run are not independent of each other; those of
different runs are.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from dpsweep.accounting.accountants.rdp import Conversion, Rdp
from dpsweep.accounting.durable_files import make_folder_and_missing_parents
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.files import READABLE, require_known_version
from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.reports.content.facts import read_bill
from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.reproduction.processor_time import read_processor_time
from dpsweep.reports.statistics.point_scores import NOISE, STEPS

NOBODY = "protects nobody, since the data were declared public"
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, kw_only=True)
class TrainingFacts:
    """Facts of one search for readers.

    `noise_multipliers`, `batch_sizes` and `steps` hold the distinct values in ascending order; `epsilon` is the price
    of the whole search as text at `delta`; `commits` are the versions of the program's source that trained, empty if
    unknown; `core_minutes` is the processor time of the whole command over 60 seconds, None if it was not measured.
    """

    account: str
    records: int
    runs: int
    points: int
    batch_sizes: tuple[int, ...]
    steps: tuple[int, ...]
    noise_multipliers: tuple[float, ...]
    epsilon: str
    delta: float
    adjacency: str
    began: str
    ended: str
    commits: tuple[str, ...]
    core_minutes: float | None
    versions: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The facts as plain values."""
        return asdict(self) | {"versions": dict(self.versions)}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> TrainingFacts:
        """Reads `to_json`'s form."""
        several = ("batch_sizes", "steps", "noise_multipliers", "commits")
        return cls(**{**form, **{name: tuple(form[name]) for name in several}})


def training_facts_of_sweep(sweep: Sweep, noises: Iterable[float]) -> TrainingFacts:
    """The facts of a finished sweep with these noise multipliers, and the processor time in the figure's folder."""
    configs = [trial.config for trial in sweep.plan.trials]
    results = tuple(sweep.results_by_trial.values())
    cost = read_processor_time(sweep.folder.parents[1])
    return TrainingFacts(
        account=sweep.plan.account,
        records=int(configs[0]["dataset"]["records"]),
        runs=len(sweep.table),
        points=len(sweep.table.drop_duplicates([*sweep.swept_keys, "method"])),
        batch_sizes=_sorted_distinct_values(config["sampler"]["batch_size"] for config in configs),
        steps=_sorted_distinct_values(config["steps"] for config in configs),
        noise_multipliers=_sorted_distinct_values(map(float, noises)),
        epsilon=NOBODY if sweep.plan.has_public_data else epsilon_text_rounded_up(read_bill(sweep).epsilon),
        delta=sweep.plan.delta,
        adjacency=sweep.plan.adjacency.value,
        began=min((result.started for result in results), default=""),
        ended=max((result.ended for result in results), default=""),
        commits=cost.commits,
        core_minutes=None if cost.seconds is None else round(cost.seconds / 60, 2),
        versions={name: text for result in results for name, text in result.versions.items()},
    )


def _sorted_distinct_values(values: Iterable[Number]) -> tuple[Number, ...]:
    return tuple(sorted(set(values)))


RunCurve = tuple[Mapping[str, Any], ...]
"""A run's recorded steps, each {"step", ...} with what was measured there; a value that was not finite is None."""

NO_BOUND = "no bound"


@dataclass(frozen=True, kw_only=True)
class RunPrice:
    """Epsilon of one run alone at a noise multiplier, as text: by the papers' accountant and by ours."""

    noise_multiplier: float
    papers: str
    ours: str


@dataclass(frozen=True, kw_only=True)
class SearchResults:
    """What a figure reads: the results of a search without hidden runs.

    `table` has the columns of `Sweep.table` and each run's planned number of `steps`; `curves` maps a run to its
    learning curve, runs without one left out; `axes` are the swept keys. `prices` is empty for data declared public.
    """

    table: pd.DataFrame
    curves: Mapping[str, RunCurve]
    axes: tuple[str, ...]
    quality: str
    measure: str
    prices: tuple[RunPrice, ...]
    facts: TrainingFacts

    def curve_of_run(self, trial: object) -> RunCurve:
        """The learning curve of a run, empty if it recorded none."""
        return self.curves.get(str(trial), ())


def results_of_sweep(sweep: Sweep) -> SearchResults:
    """The results in a sweep's folder."""
    table = _table_with_steps_and_noise(sweep)
    curves = {trial: tuple(result.curator.get("curve") or ()) for trial, result in sweep.results_by_trial.items()}
    return SearchResults(
        table=table,
        curves={trial: curve for trial, curve in curves.items() if curve},
        axes=sweep.swept_keys,
        quality=sweep.score_label,
        measure=sweep.score_description,
        prices=() if sweep.plan.has_public_data else _price_of_dearest_run_by_noise(sweep, table),
        facts=training_facts_of_sweep(sweep, table[NOISE]),
    )


def _table_with_steps_and_noise(sweep: Sweep) -> pd.DataFrame:
    """The sweep's table with planned steps, and with the configured noise where an event is no Gaussian step by itself.

    Batches without replacement are such events.
    """
    configs = {trial.id: trial.config for trial in sweep.plan.trials}
    own = [configs[trial] for trial in sweep.table["trial"]]
    noises = [
        config["privacy"]["noise_multiplier"] if noise is None else noise
        for noise, config in zip(sweep.table[NOISE], own, strict=True)
    ]
    return sweep.table.assign(**{STEPS: [int(config["steps"]) for config in own], NOISE: noises})


def _price_of_dearest_run_by_noise(sweep: Sweep, table: pd.DataFrame) -> tuple[RunPrice, ...]:
    """The most expensive run at each noise multiplier."""
    papers = Rdp(conversion=Conversion.MIRONOV)
    most_expensive = table.astype({"epsilon_alone": float, NOISE: float}).groupby(NOISE)["epsilon_alone"].idxmax()
    events = {trial.id: trial.event.training for trial in sweep.plan.trials}
    prices = []
    for noise, place in most_expensive.items():
        run, ours = events[table.loc[place, "trial"]], table.loc[place, "epsilon_alone"]
        try:
            theirs = epsilon_text_rounded_up(papers.epsilon(run, sweep.plan.delta, sweep.plan.adjacency))
        except UnsupportedEvent:
            theirs = NO_BOUND
        prices.append(RunPrice(noise_multiplier=float(str(noise)), papers=theirs, ours=epsilon_text_rounded_up(ours)))
    return tuple(prices)


SCHEMA, SUFFIX, DIGITS = 1, ".json.xz", 6
RESULTS = f"results{SUFFIX}"
"""The file in a figure's folder."""

LEFT_OUT = ("trial", "seconds", "device", "folder", "error", "attempts_charged", "attempts_started", "conduct", "gap")
"""Columns of a sweep's table that no figure reads. Runs are numbered instead of named."""

LOOKS = ("step", "test_accuracy", "training_accuracy", "training_loss", "gradient_norm_q50", "gradient_norm_q90")
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
        "table": {
            str(name): list(map(_plain_json_value, results.table[name]))
            for name in results.table
            if name not in LEFT_OUT
        },
        "curves": [_curve_as_columns(results.curve_of_run(trial)) for trial in results.table["trial"]],
    }
    data = lzma.compress(json.dumps(form, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME)
    make_folder_and_missing_parents(file.parent, READABLE)
    new = file.with_suffix(".new")
    new.write_bytes(data)
    new.replace(file)


def read_results(file: Path) -> SearchResults:
    """Reads `write_results`' file; raises `BadInput` if it is of another version."""
    form = json.loads(lzma.decompress(file.read_bytes()))
    require_known_version(f"schema in {file}", form.get("schema"), SCHEMA)
    runs = [str(place) for place in range(1, len(form["curves"]) + 1)]
    table = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in form["table"].items()})
    return SearchResults(
        table=table.assign(trial=runs),
        curves={run: _curve_from_columns(looks) for run, looks in zip(runs, form["curves"], strict=True) if looks},
        axes=tuple(form["axes"]),
        quality=form["quality"],
        measure=form["measure"],
        prices=tuple(RunPrice(**price) for price in form["prices"]),
        facts=TrainingFacts.from_json(form["facts"]),
    )


def _curve_as_columns(curve: RunCurve) -> dict[str, list[Any]]:
    """A learning curve by columns: what figures read of it."""
    kept = [name for name in LOOKS if any(name in look for look in curve)]
    return {name: [_plain_json_value(look.get(name)) for look in curve] for name in kept}


def _curve_from_columns(looks: Mapping[str, Iterable[Any]]) -> RunCurve:
    return tuple(dict(zip(looks, values, strict=True)) for values in zip(*looks.values(), strict=True))


def _plain_json_value(value: Any) -> Any:
    """A value as JSON has it: numbers rounded, what is missing or not finite as null."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    item = getattr(value, "item", None)
    return value if item is None else _plain_json_value(item())


ACCURACIES = ("test_accuracy", "training_accuracy")
"""What a look may have recorded; the test set's comes first."""

LENGTHS = 10
"""Lengths at which a claim on the whole course of training is judged: more would only widen each interval."""


def table_with_row_per_recorded_step(results: SearchResults) -> pd.DataFrame:
    """The search's table with a row per look in place of a row per run: its `steps` and the score at that step.

    A run that diverged scores 0 at every step that was recorded; a run without a curve has no rows.
    """
    looks = [row for run in results.table.to_dict("records") for row in _row_per_recorded_step_of_run(run, results)]
    return pd.DataFrame(looks, columns=list(dict.fromkeys([*results.table.columns, STEPS])))


def rows_at_evenly_spaced_steps(rows: pd.DataFrame, count: int = LENGTHS) -> pd.DataFrame:
    """The rows of at most `count` evenly spaced lengths, the last one included."""
    lengths = sorted(set(rows[STEPS]))
    kept = {lengths[place] for place in np.linspace(len(lengths) / count, len(lengths), count).round().astype(int) - 1}
    chosen: pd.DataFrame = rows[rows[STEPS].isin(kept)]
    return chosen


def rows_of_first_recorded_step(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the first recorded step."""
    first: pd.DataFrame = rows[rows[STEPS] == rows[STEPS].min()]
    return first


def _row_per_recorded_step_of_run(run: dict[Any, Any], results: SearchResults) -> list[dict[Any, Any]]:
    unknown, curve = {"accuracy_low": np.nan, "accuracy_high": np.nan}, results.curve_of_run(run["trial"])
    return [run | unknown | {STEPS: look["step"], "accuracy": _accuracy_at_recorded_step(run, look)} for look in curve]


def _accuracy_at_recorded_step(run: dict[Any, Any], look: Mapping[str, Any]) -> float:
    if run["state"] == State.DIVERGED:
        return float("nan")
    value = next(look[name] for name in ACCURACIES if name in look)
    return float("nan") if value is None else float(value)
