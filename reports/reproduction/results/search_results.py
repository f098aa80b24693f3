"""The results of a search as its figure reads them: a table with a row per run, learning curves, and prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dpsweep.accounting.accountants.rdp import Conversion, Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.notation import epsilon_up
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.reproduction.results.training_facts import TrainingFacts, facts_of
from dpsweep.reports.statistics.run_rows import NOISE, STEPS

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

    def curve(self, trial: object) -> RunCurve:
        """The learning curve of a run, empty if it recorded none."""
        return self.curves.get(str(trial), ())


def results_of(sweep: Sweep) -> SearchResults:
    """The results in a sweep's folder."""
    table = _table(sweep)
    curves = {trial: tuple(result.curator.get("curve") or ()) for trial, result in sweep.results.items()}
    return SearchResults(
        table=table,
        curves={trial: curve for trial, curve in curves.items() if curve},
        axes=sweep.axes,
        quality=sweep.quality,
        measure=sweep.measure,
        prices=() if sweep.plan.public else _prices(sweep, table),
        facts=facts_of(sweep, table[NOISE]),
    )


def _table(sweep: Sweep) -> pd.DataFrame:
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


def _prices(sweep: Sweep, table: pd.DataFrame) -> tuple[RunPrice, ...]:
    """The most expensive run at each noise multiplier."""
    papers = Rdp(conversion=Conversion.MIRONOV)
    most_expensive = table.astype({"epsilon_alone": float, NOISE: float}).groupby(NOISE)["epsilon_alone"].idxmax()
    events = {trial.id: trial.event.training for trial in sweep.plan.trials}
    prices = []
    for noise, place in most_expensive.items():
        run, ours = events[table.loc[place, "trial"]], table.loc[place, "epsilon_alone"]
        try:
            theirs = epsilon_up(papers.epsilon(run, sweep.plan.delta, sweep.plan.adjacency))
        except UnsupportedEvent:
            theirs = NO_BOUND
        prices.append(RunPrice(noise_multiplier=float(str(noise)), papers=theirs, ours=epsilon_up(ours)))
    return tuple(prices)
