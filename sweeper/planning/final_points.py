"""The final run of each point, declared before the search: its records, its batch size and its learning rate.

Under `tuning=disjoint` and `tuning=subsampled` the search and the final run read different records, both at the sample
rate that the configuration declares for all records: a part's batch size is that of all records times the part's share.
The noise per example of the final run is much smaller than that of the search, so its learning rate is carried over by
the rule's exponent (`carry`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import FINAL, Trial
from dpsweep.accounting.selection.interface import SelectionRule, Use
from dpsweep.sweeper.planning.limits import LIMITS
from dpsweep.sweeper.planning.point import Point
from dpsweep.sweeper.trial.spec import declare, train_records

RATE = "trainer.lr"
DIGITS = 4
"""Significant digits of a carried learning rate."""


def with_finals(points: Iterable[Point], rule: SelectionRule) -> Iterator[Point]:
    """The points as the rule runs them, each with its final run if the rule has one."""
    run = rule.final_run
    for point in points:
        if run is None:
            yield point
        else:
            search, final = (_in_part(point, run.parts[use]) for use in (Use.SEARCH, Use.FINAL))
            yield replace(search, final=replace(final, config={**final.config, FINAL: True}))


def carried(trial: Trial, rule: SelectionRule) -> Trial:
    """The trial with the learning rate of its final run carried over from its own noise per example."""
    run = rule.final_run
    if trial.final is None or run is None or run.carry is None or "lr" not in trial.config["trainer"]:
        return trial
    own, final = (_noise_per_example(one.config) for one in (trial, trial.final))
    if not own or not final:
        return trial
    rate = float(f"{trial.config['trainer']['lr'] * (own / final) ** run.carry:.{DIGITS}g}")
    if not LIMITS[RATE][0] <= rate <= LIMITS[RATE][1]:
        raise BadInput(f"Expected tuning.carry={run.carry} to carry {RATE} to a number in its limits, got {rate:g}.")
    config: Mapping[str, Any] = {**trial.final.config, "trainer": {**trial.final.config["trainer"], "lr": rate}}
    axes = {**trial.final.axes, RATE: rate} if RATE in trial.final.axes else trial.final.axes
    return replace(trial, final=replace(trial.final, axes=axes, config=config))


def _in_part(point: Point, part: Mapping[str, Any] | None) -> Point:
    """The point on a part of the records, with the sample rate that it has on all of them."""
    if part is None:
        return point
    config = {**point.config, "part": part}
    if isinstance(batch_size := config["sampler"].get("batch_size"), int):
        share = train_records(config) / train_records(point.config)
        config["sampler"] = {**config["sampler"], "batch_size": max(1, round(batch_size * share))}
    return replace(point, config=config)


def _noise_per_example(config: Mapping[str, Any]) -> float:
    """The standard deviation of the noise on a mean of bounded gradients, in units of the bound."""
    return float(config["privacy"]["noise_multiplier"]) / declare(config).sampler.batch_size
