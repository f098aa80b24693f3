"""Training curves: scores and losses of the runs on public records during training, by method."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.reports.content.facts import RESULTS
from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.figures import charts
from dpsweep.reports.figures.charts import Chart, Curve

SHOWN = {
    "test_accuracy": "accuracy, public test records",
    "training_loss": "loss, training records declared public",
}
"""The quantities of a look that are drawn, and their axis labels."""

Seen = Mapping[int, Sequence[float]]
"""The observed values of a method's runs at each step, unordered."""


def course(sweep: Sweep) -> Exhibit | None:
    """A chart for each observed quantity; None if no run was observed during training."""
    methods = {str(method): list(rows["trial"]) for method, rows in sweep.table.groupby("method", sort=False)}
    observed = {
        name: {method: seen for method, own in methods.items() if (seen := _seen(sweep.results, own, name))}
        for name in SHOWN
    }
    drawn = {name: seen for name, seen in observed.items() if seen}
    if not drawn:
        return None
    return Exhibit(
        key="course",
        title="Training curves",
        note="Each line is the median run of a method; the shade reaches from the smallest to the largest value. The "
        "values are measured on records declared public, at no cost.",
        source=RESULTS,
        drawings=(charts.charts("course", "Scores in the course of training, by method.", [*_charts(drawn)]),),
        sheets=tuple(_sheet(name, seen) for name, seen in drawn.items()),
    )


def _seen(results: Mapping[str, TrialResult], trials: Sequence[str], name: str) -> Seen:
    seen: defaultdict[int, list[float]] = defaultdict(list)
    for trial in trials:
        for look in results[trial].curator.get("curve", ()) if trial in results else ():
            if look.get(name) is not None:
                seen[look["step"]].append(look[name])
    return dict(sorted(seen.items()))


def _charts(drawn: Mapping[str, Mapping[str, Seen]]) -> Iterator[Chart]:
    for name, methods in drawn.items():
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


def _sheet(name: str, methods: Mapping[str, Seen]) -> Sheet:
    rows = tuple(
        (
            Item(text=method_label(method)),
            Item(text=str(step), key=step),
            Item(text=str(len(values)), key=len(values)),
            *(Item(text=f"{value:.4g}", key=value) for value in (min(values), statistics.median(values), max(values))),
        )
        for method, seen in methods.items()
        for step, values in seen.items()
    )
    return Sheet(caption=SHOWN[name], columns=("method", "steps", "runs", "least", "median", "most"), rows=rows)
