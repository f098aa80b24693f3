"""The results that loggers are given: the columns that a release shows, named one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dpsweep.accounting.notation import delta_up, epsilon_up
from dpsweep.reports.content.facts import Bill, read_bill
from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.pages.release import contradictions, covered_records
from dpsweep.sweeper.loggers.interface import LoggedRun, LoggedSweep, Promise, Value

DECLARED = ("method", "noise_multiplier")
"""Columns of the released table that are hyperparameters, beside the swept keys."""

ENDED = (State.FINISHED, State.DIVERGED)
"""The states of runs that are logged: why another run has no score is not covered by the price."""


def covered_results(sweep: Sweep) -> LoggedSweep:
    """The ended runs of a sweep; raises nothing where none has ended."""
    bill = read_bill(sweep)
    mark, promise = _promise(sweep, bill)
    return LoggedSweep(
        data_set=sweep.plan.account,
        plan=sweep.plan_id,
        mark=mark,
        facts={
            "dpsweep.data_set": sweep.plan.account,
            "dpsweep.plan": sweep.plan_id,
            "dpsweep.rule": sweep.rule.name,
            "dpsweep.mark": mark.value,
            "dpsweep.privacy": promise,
        },
        runs=tuple(_runs(sweep)),
    )


def _runs(sweep: Sweep) -> Iterator[LoggedRun]:
    scores = sweep.metric, f"{sweep.metric}_low", f"{sweep.metric}_high"
    rows = covered_records(sweep).to_dict("records")
    for label, trial_id, row in zip(sweep.labels, sweep.all_runs["trial"], rows, strict=True):
        result = sweep.results.get(trial_id)
        if row["state"] not in ENDED or result is None:
            continue
        trial = sweep.trial(trial_id)
        declared = _settings(trial.config) | {
            name: row[name] for name in (*DECLARED, *sweep.run_keys) if row[name] is not None
        }
        yield LoggedRun(
            key=f"{sweep.plan_id}-{trial_id}-{result.attempt}",
            name=f"{sweep.plan_id} {label}",
            hyperparameters={name: _plain_value(value) for name, value in declared.items() if value is not None},
            scores={name: float(row[name]) for name in scores if _is_number(row[name])},
        )


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The method's numbers, the steps, and the expected batch size, all as declared before the charge."""
    method = {f"trainer.{key}": value for key, value in config.get("trainer", {}).items() if _is_number(value)}
    return method | {"steps": config.get("steps"), "batch_size": config.get("sampler", {}).get("batch_size")}


def _plain_value(value: Any) -> Value:
    return value if isinstance(value, (str, int, float, bool)) else json.dumps(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and value == value


def _promise(sweep: Sweep, bill: Bill) -> tuple[Promise, str]:
    """What the results promise, in one word and in one sentence."""
    if sweep.plan.public:
        return Promise.PUBLIC, "None: these data were declared public."
    if void := contradictions(sweep, bill):
        return (Promise.SEEDED if sweep.reproducible else Promise.CONTRADICTED), f"None. {void[0].text}"
    plan = sweep.plan
    return Promise.PRIVATE, (
        f"Epsilon {epsilon_up(bill.epsilon)} at delta {delta_up(bill.delta)} per {plan.unit} "
        f"({plan.adjacency.value}), for all runs of the search together."
    )
