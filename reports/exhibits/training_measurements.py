"""What runs measured in training on records declared public: curves, losses, how gradients were bounded; other maps.

The scores themselves have one map. A second one of their logarithms would show the same numbers with the opposite
order of colours; differences among good scores are seen on the first, since its scale leaves far outliers out.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from dpsweep.accounting.records.plan import REPEAT
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.reports.content.facts import RESULTS
from dpsweep.reports.content.formatting import axis_label, method_label, setting_text
from dpsweep.reports.content.panels import MapPanel, build_map_panels
from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.content.tables import Cell, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.figures import charts
from dpsweep.reports.figures.charts import Chart, Curve, Map
from dpsweep.reports.statistics.point_scores import CLIP, METHOD, REGULARIZER

SHOWN = {"test_accuracy": "accuracy, public test records", "training_loss": "loss, training records declared public"}
"""The quantities of a look that are drawn, and their axis labels."""

Seen = Mapping[int, Sequence[float]]
"""The observed values of a method's runs at each step, unordered."""


def training_curves_exhibit(sweep: Sweep) -> Exhibit | None:
    """A chart for each observed quantity; None if no run was observed during training."""
    methods = {str(method): list(rows["trial"]) for method, rows in sweep.table.groupby("method", sort=False)}
    observed = {
        name: {
            method: seen
            for method, own in methods.items()
            if (seen := _observed_values_by_step(sweep.results_by_trial, own, name))
        }
        for name in SHOWN
    }
    kept = {name: seen for name, seen in observed.items() if seen}
    if not kept:
        return None
    return Exhibit(
        key="course",
        title="Training curves",
        note="Each line is the median run of a method; the shade reaches from the smallest to the largest value. The "
        "values are measured on records declared public, at no cost.",
        source=RESULTS,
        drawings=(
            charts.draw_charts("course", "Scores in the course of training, by method.", *_training_curve_charts(kept)),
        ),
        sheets=tuple(_training_curve_sheet(name, seen) for name, seen in kept.items()),
    )


def _observed_values_by_step(results: Mapping[str, TrialResult], trials: Sequence[str], name: str) -> Seen:
    seen: defaultdict[int, list[float]] = defaultdict(list)
    for trial in trials:
        for look in results[trial].curator.get("curve", ()) if trial in results else ():
            if look.get(name) is not None:
                seen[look["step"]].append(look[name])
    return dict(sorted(seen.items()))


def _training_curve_charts(observed: Mapping[str, Mapping[str, Seen]]) -> Iterator[Chart]:
    for name, methods in observed.items():
        yield Chart(
            title=SHOWN[name].partition(",")[0].capitalize(),
            x_label="steps",
            y_label=SHOWN[name],
            curves=tuple(
                Curve(
                    label=method_label(method),
                    x=tuple(seen),
                    y=tuple(map(statistics.median, seen.values())),
                    band=tuple((min(values), max(values)) for values in seen.values()),
                )
                for method, seen in methods.items()
            ),
        )


def _training_curve_sheet(name: str, methods: Mapping[str, Seen]) -> Sheet:
    rows: list[tuple[Cell, ...]] = [
        (
            *(method_label(method), (str(step), step), (str(len(values)), len(values))),
            *((f"{value:.4g}", value) for value in (min(values), statistics.median(values), max(values))),
        )
        for method, seen in methods.items()
        for step, values in seen.items()
    ]
    return Sheet.from_cells(SHOWN[name], ("method", "steps", "runs", "least", "median", "most"), rows)


QUANTILES = ("gradient_norm_q10", "gradient_norm_q50", "gradient_norm_q90")
SHORTENED = "shortened"
MEASURED = (*QUANTILES, SHORTENED)

ALMOST_ALL, HARDLY_ANY = 0.9, 0.1
"""Shares of the gradients from which on a bound always counts, and up to which it hardly ever does."""


def gradient_norms_exhibit(sweep: Sweep) -> Exhibit | None:
    """Quantiles of the norms at the last measurement, by method and bound; None if no run measured any."""
    seen = _runs_with_last_gradient_norms(sweep)
    rows = [row for setting in (CLIP, REGULARIZER) for row in _gradient_norm_rows(seen, setting)]
    if not rows:
        return None
    columns = ("method", "bound", "runs", "10 %", "50 %", "90 %", "shortened")
    return Exhibit(
        key="gradient-norms",
        title="Norms of gradients",
        note="At the last measurement, for training records that were declared public: the norms that 10, 50 and 90 % "
        "of the per-example gradients stay below, and the share of the gradients that the bound shortens; each the "
        "median over the runs of the row. Choose the values of the bound around these norms.",
        source=RESULTS,
        findings=tuple(_clip_norm_sentences(seen)),
        sheets=(Sheet.from_cells("Norms of per-example gradients, by the bound", columns, rows),),
    )


def _runs_with_last_gradient_norms(sweep: Sweep) -> pd.DataFrame:
    """The runs that measured norms, each with its last measurement beside its row."""
    looks = _last_look_by_trial(sweep)
    last = {trial: look for trial, look in looks.items() if look.get(QUANTILES[0]) is not None}
    table = sweep.table[sweep.table["trial"].isin(last)]
    measured = {name: [last[trial][name] for trial in table["trial"]] for name in MEASURED}
    return table.assign(**measured)


def _gradient_norm_medians_by_bound(
    seen: pd.DataFrame, setting: str
) -> Iterator[tuple[str, float, Mapping[str, float]]]:
    """Each method and value of the setting, with the medians over its runs."""
    if setting not in seen:
        return
    for (method, bound), runs in seen[seen[setting].notna()].groupby([METHOD, setting], sort=False):
        medians = {name: float(runs[name].median()) for name in MEASURED}
        yield str(method), float(str(bound)), medians | {"runs": len(runs)}


def _gradient_norm_rows(seen: pd.DataFrame, setting: str) -> Iterator[tuple[Cell, ...]]:
    for method, bound, medians in _gradient_norm_medians_by_bound(seen, setting):
        yield (
            *(method_label(method), (f"{axis_label(setting)} {setting_text(bound)}", bound)),
            *(
                (f"{medians['runs']:.0f}", medians["runs"]),
                *((f"{medians[name]:.3g}", medians[name]) for name in QUANTILES),
            ),
            (f"{medians[SHORTENED]:.0%}", medians[SHORTENED]),
        )


def _clip_norm_sentences(seen: pd.DataFrame) -> Iterator[str]:
    """Which clip norms always bind, and which hardly do; a regularizer shortens by its nature."""
    for method, runs in seen.groupby(METHOD, sort=False):
        shares = {bound: medians[SHORTENED] for _, bound, medians in _gradient_norm_medians_by_bound(runs, CLIP)}
        always = [setting_text(bound) for bound, share in shares.items() if share >= ALMOST_ALL]
        hardly = [setting_text(bound) for bound, share in shares.items() if share <= HARDLY_ANY]
        if always:
            yield (
                f"{method_label(str(method))}: clip_norm {', '.join(always)} shortens at least {ALMOST_ALL:.0%} of the "
                "gradients: there the product lr x clip_norm counts, not each alone."
            )
        if hardly:
            yield (
                f"{method_label(str(method))}: clip_norm {', '.join(hardly)} shortens at most {HARDLY_ANY:.0%} of the "
                "gradients: a larger one would add noise and little else."
            )


LEAST = 5
"""Smallest number of finished points for a map."""

WHITE = 0.01
"""The share of points, those with the lowest losses, drawn white. *Source*: Mohapatra et al. 2022, Figures 2 to 5."""

SMALLEST = 1e-9
TRAINING_LOSS, MEAN_FACTOR = "training_loss", "mean_factor"


def training_losses_exhibit(sweep: Sweep) -> Exhibit | None:
    """Maps of the finished runs' last observed training losses, on data declared public; None with few of them."""
    losses = _last_value_of_each_run(sweep, TRAINING_LOSS)
    logs = losses.where(sweep.table["state"] == State.FINISHED).map(
        lambda loss: None if loss is None or pd.isna(loss) else math.log10(max(loss, SMALLEST))
    )
    logs = logs.astype(object).where(logs.notna(), None)
    known = logs.dropna().astype(float)
    if len(known) < LEAST:
        return None
    limit = float(known.quantile(WHITE, interpolation="lower"))
    panels, measure = build_map_panels(_replace_scores(sweep.table, logs), sweep.swept_keys), "log10 of training loss"
    drawing = charts.draw_maps(
        "training-losses",
        f"{measure} over the grid.",
        measure,
        *(_map_from_panel(panel, limit) for panel in panels),
        light="low",
    )
    return Exhibit(
        key="training-losses",
        title="Training losses",
        note="On training records, which were declared public; the lower, the lighter. A log scale shows differences "
        f"between losses that are all small or all large. White: the lowest {WHITE:.0%} of the points, at least one.",
        source=RESULTS,
        drawings=(drawing,),
        sheets=tuple(_map_sheet(panel, "{:.3f}") for panel in panels),
    )


def clipping_effect_exhibit(sweep: Sweep) -> Exhibit | None:
    """The effect of bounding gradients at the last look at data declared public, and the resulting step size."""
    factors, shares = _last_value_of_each_run(sweep, MEAN_FACTOR), _last_value_of_each_run(sweep, SHORTENED)
    if factors.notna().sum() < LEAST:
        return None
    rates = (run.trial.config.get("trainer", {}).get("lr") for run in sweep.runs.rows)
    steps = (rate and factor and rate * factor for rate, factor in zip(rates, factors, strict=True))
    columns = {
        "log10 of mean factor": (math.log10(factor) if factor else None for factor in factors),
        "share of gradients shortened": shares,
        "log10 of lr x mean factor": (math.log10(step) if step else None for step in steps),
    }
    maps = {
        measure: build_map_panels(_replace_scores(sweep.table, pd.Series(list(column), dtype=object)), sweep.swept_keys)
        for measure, column in columns.items()
    }
    return Exhibit(
        key="bounding",
        title="How gradients are bounded",
        note="At the last measurement, for training records that were declared public: the mean factor by which a "
        "gradient is multiplied before noise is added, the share of gradients that this factor shortens, and the "
        "resulting step size for the raw gradient of a method without momentum.",
        source=RESULTS,
        drawings=tuple(
            charts.draw_maps(
                f"bounding-{place}", f"{measure} over the grid.", measure, *(_map_from_panel(panel) for panel in panels)
            )
            for place, (measure, panels) in enumerate(maps.items(), start=1)
        ),
        sheets=tuple(
            replace(_map_sheet(panel, "{:.4g}"), caption=f"{measure}: {panel.name}")
            for measure, panels in maps.items()
            for panel in panels
        ),
    )


def _last_value_of_each_run(sweep: Sweep, name: str) -> pd.Series[Any]:
    """The value of this quantity at each run's last look, None for runs without looks."""
    looks = _last_look_by_trial(sweep)
    return pd.Series([looks.get(trial, {}).get(name) for trial in sweep.table["trial"]], dtype=object)


def _last_look_by_trial(sweep: Sweep) -> dict[str, Mapping[str, Any]]:
    """What each run measured last in the course of its training; runs without looks are left out."""
    curves = {trial: result.curator.get("curve", ()) for trial, result in sweep.results_by_trial.items()}
    return {trial: looks[-1] for trial, looks in curves.items() if looks}


def how_often_best_exhibit(sweep: Sweep) -> Exhibit | None:
    """The share of repetitions in which each point has its method's best score; None without repetitions."""
    table = sweep.compared_rows
    if REPEAT not in table or table[REPEAT].nunique() < 2:
        return None
    finished = table[(table["state"] == State.FINISHED) & table["accuracy"].notna()]
    if finished.empty:
        return None
    shares = pd.Series(0.0, index=table.index)  # unfinished points did not win
    for _, rows in finished.groupby(["method", "noise_multiplier", REPEAT], sort=False, dropna=False):
        top = rows["accuracy"] == rows["accuracy"].max()
        shares[rows.index] = top / top.sum()
    panels = build_map_panels(
        _replace_scores(table, shares.astype(object)).assign(state=State.FINISHED), sweep.swept_keys
    )
    return Exhibit(
        key="how-often-best",
        title="How often the best",
        note="The share of the repetitions in which a point has the best score of its method at its noise; equal "
        "scores share. A point that is best once by chance is seldom best again.",
        source=RESULTS,
        drawings=(
            charts.draw_maps(
                "how-often-best",
                "How often each point is the best.",
                "share of repetitions, %",
                *(_map_from_panel(panel, factor=100) for panel in panels),
            ),
        ),
        sheets=tuple(_map_sheet(panel, "{:.0%}") for panel in panels),
    )


def _replace_scores(table: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """The table with these values in place of the scores, and without intervals."""
    return table.assign(accuracy=values.where(values.notna(), None), accuracy_low=None, accuracy_high=None)


def _panel_values(panel: MapPanel) -> Sequence[Sequence[float]]:
    """The values by row and column, nan for cells without one."""
    known = {
        place: float(cell.accuracy)
        for place, cell in panel.cells.items()
        if cell.state is State.FINISHED and cell.accuracy is not None
    }
    columns = range(len(panel.across.values))
    return [[known.get((row, column), math.nan) for column in columns] for row in range(len(panel.down.values))]


def _map_from_panel(panel: MapPanel, limit: float = -math.inf, factor: float = 1) -> Map:
    """A panel as a map; cells with a value of at most `limit` are white."""
    values = _panel_values(panel)
    return Map(
        title=panel.name,
        x_label=panel.across.label,
        y_label=panel.down.label,
        columns=panel.across.ticks,
        rows=panel.down.ticks,
        values=tuple(tuple(factor * value for value in line) for line in values),
        white=frozenset(
            (row, column) for row, line in enumerate(values) for column, value in enumerate(line) if value <= limit
        ),
    )


def _map_sheet(panel: MapPanel, form: str) -> Sheet:
    """A panel's numbers in the same layout as in the picture."""
    rows = (
        (
            panel.down.ticks[row] or panel.label,
            *("" if math.isnan(value) else (form.format(value), value) for value in line),
        )
        for row, line in reversed(list(enumerate(_panel_values(panel))))
    )
    across = [f"{panel.across.label} {tick}".strip() for tick in panel.across.ticks]
    return Sheet.from_cells(panel.name, (panel.down.label or panel.label, *across), rows)
