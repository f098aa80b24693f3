"""The results that loggers are given: the columns that a release shows, named one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_up
from dpsweep.reports.content.facts import Bill, read_bill
from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.pages.release import contradicted_public_lines, table_of_disclosed_runs
from dpsweep.sweeper.loggers.interface import LoggedRun, LoggedSweep, Promise, Value

DECLARED = ("method", "noise_multiplier")
"""Columns of the released table that are hyperparameters, beside the swept keys."""

ENDED = (State.FINISHED, State.DIVERGED)
"""The states of runs that are logged: why another run has no score is not covered by the price."""


def logged_sweep_of_ended_runs(sweep: Sweep) -> LoggedSweep:
    """The ended runs of a sweep; raises nothing where none has ended."""
    bill = read_bill(sweep)
    mark, promise = _promise_word_and_sentence(sweep, bill)
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
        runs=tuple(_logged_ended_runs(sweep)),
    )


def _logged_ended_runs(sweep: Sweep) -> Iterator[LoggedRun]:
    metric = sweep.exported_metric
    scores = metric, f"{metric}_low", f"{metric}_high"
    rows = table_of_disclosed_runs(sweep).to_dict("records")
    for label, trial_id, row in zip(sweep.run_labels, sweep.all_run_rows["trial"], rows, strict=True):
        result = sweep.results_by_trial.get(trial_id)
        if row["state"] not in ENDED or result is None:
            continue
        trial = sweep.trial_with_id(trial_id)
        declared = _declared_hyperparameters(trial.config) | {
            name: row[name] for name in (*DECLARED, *sweep.keys_that_tell_runs_apart) if row[name] is not None
        }
        yield LoggedRun(
            key=f"{sweep.plan_id}-{trial_id}-{result.attempt}",
            name=f"{sweep.plan_id} {label}",
            hyperparameters={
                name: _plain_value_or_json(value) for name, value in declared.items() if value is not None
            },
            scores={name: float(row[name]) for name in scores if _is_number_but_not_nan(row[name])},
        )


def _declared_hyperparameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The method's numbers, the steps, and the expected batch size, all as declared before the charge."""
    method = {
        f"trainer.{key}": value for key, value in config.get("trainer", {}).items() if _is_number_but_not_nan(value)
    }
    return method | {"steps": config.get("steps"), "batch_size": config.get("sampler", {}).get("batch_size")}


def _plain_value_or_json(value: Any) -> Value:
    return value if isinstance(value, (str, int, float, bool)) else json.dumps(value)


def _is_number_but_not_nan(value: object) -> bool:
    return isinstance(value, (int, float)) and value == value


def _promise_word_and_sentence(sweep: Sweep, bill: Bill) -> tuple[Promise, str]:
    """What the results promise, in one word and in one sentence."""
    if sweep.plan.has_public_data:
        return Promise.PUBLIC, "None: these data were declared public."
    if void := contradicted_public_lines(sweep, bill):
        return (Promise.SEEDED if sweep.is_noise_reproducible else Promise.CONTRADICTED), f"None. {void[0].text}"
    plan = sweep.plan
    return Promise.PRIVATE, (
        f"Epsilon {epsilon_text_rounded_up(bill.epsilon)} at delta {delta_text_rounded_up(bill.delta)} per {plan.unit} "
        f"({plan.adjacency.value}), for all runs of the search together."
    )
