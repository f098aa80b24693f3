"""A sweep, read once from its folder and its ledger into one frozen value with everything that a page needs.

The plan declares settings, the result files hold results, the ledger holds charges and starts. Each kind of fact has
one source: prices come from the ledger alone, settings from the plan alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import mechanisms_with_counts
from dpsweep.accounting.ledger.book import Statement
from dpsweep.accounting.ledger.charges import require_paid_charges
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import card_part
from dpsweep.accounting.ledger.upkeep import verify_entries
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.records.card import CardAnswer
from dpsweep.accounting.records.plan import REPEAT, Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.taken_steps import took_declared_steps
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.rule_words import event_of_run_alone
from dpsweep.accounting.searches.interface import (
    POINT_SCORES,
    PlannedSearch,
    RunRecord,
    Runs,
    index_of_winning_run,
    search_for_plan,
)
from dpsweep.accounting.selection.interface import Disclosure, SelectionRule
from dpsweep.accounting.selection.rules import rule_from_config
from dpsweep.accounting.stored_names.stored_classes import tag_or_path_of_class
from dpsweep.reports.content.formatting import ACCURACY, metric_label
from dpsweep.reports.content.map_axes import are_all_numbers
from dpsweep.reports.content.score_scale import PERCENT, ScoreScale, score_scale_of_config
from dpsweep.reports.content.shown_search import ShownSearch, shown_search_of_plan
from dpsweep.reports.statistics.point_scores import PointScore, score_of_point

FINAL = "final"
"""The label of the final run, which has no number."""

_SCORES = {ACCURACY: "value", "accuracy_low": "low", "accuracy_high": "high", "records_error": "records_error"}
NEXT_TOKEN_ACCURACY = "next-token accuracy"
"""The share of a text's tokens that a language model finds most likely, given the tokens before each."""
SHARE_OF_RIGHT_LABELS = "share of right labels"
"""The share of a record's several labels that are right."""
_QUALITIES = {"next_token": NEXT_TOKEN_ACCURACY, "binary_cross_entropy": SHARE_OF_RIGHT_LABELS}
"""By the tag of a loss: the quality whose mean over records a score is."""
_RETURNED = {"steps_run": "steps", "seconds": "seconds", "device": "device", "error": "error"}


class State(StrEnum):
    """The outcome of a point."""

    FINISHED = "finished"
    DIVERGED = "diverged"
    FAILED = "failed"
    KILLED = "killed"
    NOT_RUN = "not run"
    NOT_TRIED = "not tried"
    NO_RESULT = "no result"


class Conduct(StrEnum):
    """The run compared with its declaration and its charge."""

    AS_DECLARED = "as declared"
    STOPPED_EARLY = "stopped early, within its declaration"
    UNKNOWN = "ended before it reported its steps"
    NOTHING = "no result"
    OTHERWISE = "not as declared"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The current state of one sweep.

    `plan_id` is the plan's identity, `account` the ledger's statement, `entries` the length of the whole ledger's
    verified chain. `table` is tidy: one row per run in the order of the plan, the proposals or the draw, one column per
    swept key, and `trial, method, noise_multiplier, state, accuracy, accuracy_low, accuracy_high, records_error, gap,
    steps_run, seconds, attempts_charged, attempts_started, epsilon_alone, conduct, device, folder, error`. `final` has
    the same columns, and the row of the final run once it is chosen. `card` is what a sealed part told of the winner.
    """

    folder: Path
    plan: Plan
    plan_id: str
    rule: SelectionRule
    account: Statement
    entries: int
    runs: Runs
    table: pd.DataFrame
    final: pd.DataFrame
    card: CardAnswer | None = None

    @property
    def all_run_rows(self) -> pd.DataFrame:
        """The rows of the search, then that of the final run."""
        if self.final.empty:
            return self.table
        final = self.final.assign(**{name: None for name in self.table.columns if name not in self.final.columns})
        rows = pd.concat([self.table.astype(object), final.astype(object)], ignore_index=True)
        return rows[list(self.table.columns)]

    @property
    def run_labels(self) -> tuple[int | str, ...]:
        """The name of each of `all_runs`: its number in the search, or `FINAL`."""
        return (*range(1, len(self.table) + 1), *[FINAL] * len(self.final))

    @cached_property
    def results_by_trial(self) -> dict[str, TrialResult]:
        """The results by trial."""
        return {run.trial.id: run.result for run in self.runs.search_and_final_run_records if run.result is not None}

    @cached_property
    def swept_keys(self) -> tuple[str, ...]:
        """The swept keys, in order of appearance."""
        return tuple(dict.fromkeys(key for trial in self.plan.trials for key in trial.axes))

    @cached_property
    def keys_that_tell_runs_apart(self) -> tuple[str, ...]:
        """What tells one run from another: the swept keys, and the repeat if points are repeated."""
        return (*self.swept_keys, REPEAT) if REPEAT in self.table else self.swept_keys

    @cached_property
    def shown(self) -> ShownSearch:
        """The search as pages show it."""
        return shown_search_of_plan(self.plan, self.rule, self.runs, private_scores=self.has_private_scores)

    @property
    def compared_rows(self) -> pd.DataFrame:
        """The rows of the table that are compared with one another: tries of a secret draw never are."""
        return self.table if self.shown.compared else self.table.iloc[:0]

    @property
    def map_rows(self) -> pd.DataFrame:
        """The rows of a map: the grid, and a row for each point that was not tried, in the plan's order."""
        if not self.runs.untried:
            return self.compared_rows
        untried = tuple(RunRecord(trial=trial, result=None, charged=0, started=0) for trial in self.runs.untried)
        missing = _table_of_runs(self.plan, replace(self.runs, rows=untried)).assign(state=State.NOT_TRIED)
        order = {self._point_key(trial.method, trial.axes): place for place, trial in enumerate(self.plan.trials)}
        rows = pd.concat([self.compared_rows, missing], ignore_index=True)
        places = [order[self._point_key(str(row["method"]), row)] for _, row in rows.iterrows()]
        return rows.iloc[sorted(range(len(rows)), key=places.__getitem__)].reset_index(drop=True)

    def _point_key(self, method: str, values: Mapping[str, Any] | pd.Series[Any]) -> str:
        return repr((method, *(values.get(key) for key in self.swept_keys)))

    @property
    def planned_search(self) -> PlannedSearch:
        """The search of the plan in this folder."""
        return search_for_plan(self.plan, SweepFolder(root=self.folder))

    @property
    def winner_id(self) -> str | None:
        """The run whose model is handed over; None if there is none, or if it has not finished."""
        return self.runs.winner

    @property
    def winner_id_by_method(self) -> dict[str, str]:
        """The run by which each method would win alone; none where runs are not compared."""
        rows = self.runs.rows if self.shown.compared else ()
        scores = {place: row.score for place, row in enumerate(rows) if row.score is not None}
        best, points, repeats = {}, self.runs.points, self.plan.least_runs_per_point
        for method in dict.fromkeys(row.trial.method for row in rows):
            own = {place: score for place, score in scores.items() if rows[place].trial.method == method}
            if (place := index_of_winning_run(self.rule, own, points, repeats)) is not None:
                best[method] = rows[place].trial.id
        return best

    def point_score(self, trial: str) -> PointScore | None:
        """The score of this run's point, of all its runs where they may be told; None unless one has finished.

        Of a final run, and under a rule that hides losers, the run counts alone.
        """
        points = {row.trial.id: point for row, point in zip(self.runs.rows, self.runs.points, strict=False)}
        alone = trial not in points or self.rule.hides_losers
        scores = {
            row.trial.id: row.score
            for row in self.runs.search_and_final_run_records
            if row.score is not None and (row.trial.id == trial if alone else points.get(row.trial.id) == points[trial])
        }
        return score_of_point(scores, POINT_SCORES[self.rule.name_of_point_score])

    @property
    def has_private_scores(self) -> bool:
        """Whether scores are noisy counts of private records, charged like training."""
        return any(trial.event.validation is not None for trial in self.plan.trials)

    @property
    def disclosures(self) -> frozenset[Disclosure]:
        """All results that may be released: those of the rule, and a score of the winner if its card paid for one."""
        return self.rule.discloses | ({Disclosure.WINNER_SCORE} if self.card is not None else set())

    @property
    def metric(self) -> str:
        """The name of the score's metric, as in `score.metric`."""
        return str(self.plan.trials[0].config.get("score", {}).get("metric", ACCURACY))

    @property
    def score_label(self) -> str:
        """The score's name for readers: its metric, or the quantity whose mean over records it is."""
        if self.score_scale.name:
            return self.score_scale.name
        if self.metric != ACCURACY:
            return metric_label(self.metric) + ("" if self.metric == "balanced_accuracy" else self.positive_class_text)
        return _QUALITIES.get(tag_or_path_of_class(self.plan.trials[0].config.get("loss", {})), ACCURACY)

    @cached_property
    def score_scale(self) -> ScoreScale:
        """How scores are said: in percent, or as errors in the unit of the target."""
        return score_scale_of_config(self.plan.trials[0].config)

    @property
    def exported_metric(self) -> str:
        """The name of the scores for other programs: the metric, or the error that is told of numbers."""
        return self.score_scale.name.replace(" ", "_") or self.metric

    @property
    def score_description(self) -> str:
        """What scores are, in a few words."""
        return f"noisy {self.score_label}" if self.has_private_scores else self.score_label

    @property
    def positive_class_text(self) -> str:
        """The positive class in words, if there are two classes; otherwise empty."""
        config = self.plan.trials[0].config
        dataset, place = config.get("dataset", {}), config.get("score", {}).get("positive", 1)
        if dataset.get("classes") != 2:
            return ""
        labels = dataset.get("labels")
        return f" of {labels[place]!r}" if isinstance(labels, list) and place < len(labels) else f" of class {place}"

    def rows_for_export(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Rows for export: score columns are named by their metric, for example `f1`, `f1_low`, `f1_high`.

        Of numbers they are errors in the unit of the target, for example `mean_absolute_error`. An error that noise
        drove below 0 is no number: its place is empty, and the column `below_noise`, the last one, is true.
        """
        scaled = rows if self.score_scale is PERCENT else _rows_in_unit(rows, self.score_scale)
        return scaled.rename(columns={name: name.replace(ACCURACY, self.exported_metric, 1) for name in _SCORES})

    @property
    def is_noise_reproducible(self) -> bool:
        """Whether a reader who knows the seed can recompute a result's noise."""
        return self.plan.has_reproducible_run or any(
            result.randomness != "secret" for result in self.results_by_trial.values()
        )

    def trial_with_id(self, trial: str) -> Trial:
        """The run with this identity."""
        return next(run.trial for run in self.runs.search_and_final_run_records if run.trial.id == trial)

    def row_of_trial(self, trial: str) -> Mapping[str, Any]:
        """The table's row of a point."""
        row = self.all_run_rows.query("trial == @trial").iloc[0]
        return {str(name): value for name, value in row.items()}


def read_sweep(folder: Path, ledger: Ledger) -> Sweep:
    """Reads a sweep folder and the ledger that charged it.

    Raises `BadInput` if the folder has no plan or the ledger no charge of the plan, `LedgerDamaged` if the ledger's
    chain does not verify or a charge of the plan is below its price, `UnderCharged` if it is by this version alone.
    """
    if not (folder / "plan.json").is_file():
        raise BadInput(f"Expected output={folder} to be the folder of a sweep, with a plan.json.")
    plan = Plan.read(folder / "plan.json")
    plan_id, rule = plan.id, rule_from_config(plan.rule)
    entries = verify_entries(ledger.chain)
    account = ledger.statement_or_none(plan.account)
    if account is None or not any(entry.plan == plan_id for entry in account.charges):
        raise BadInput(
            f"Expected plan {plan_id} in {folder} to be charged on {plan.account} in this ledger: it was only "
            "planned, or charged in another ledger (DPSWEEP_LEDGER)."
        )
    require_paid_charges(account, plan_id)
    runs = search_for_plan(plan, SweepFolder(root=folder)).read_runs_and_winner(account)
    part = card_part(account.attempts_of_plan(plan_id))
    answer = None if part is None else SweepFolder(root=folder).card_files(part).answer
    return Sweep(
        card=None if answer is None or answer.claim.trial != runs.winner else answer,
        folder=folder,
        plan=plan,
        plan_id=plan_id,
        rule=rule,
        account=account,
        entries=entries,
        runs=runs,
        table=_table_of_runs(plan, runs),
        final=_table_of_runs(plan, replace(runs, rows=() if runs.final is None else (runs.final,))).assign(gap=None),
    )


def _rows_in_unit(rows: pd.DataFrame, scale: ScoreScale) -> pd.DataFrame:
    """The rows with scores, intervals, gaps and errors as the scale says them."""
    changed = rows.astype({name: object for name in (*_SCORES, "gap") if name in rows}).assign(below_noise=False)
    for index, row in rows.iterrows():
        score, gap, error = (row.get(name) for name in (ACCURACY, "gap", "records_error"))
        low, high = scale.ends(row.get("accuracy_low"), row.get("accuracy_high"))
        told = {
            ACCURACY: None if score is None else scale.exported_number(score),
            "accuracy_low": low,
            "accuracy_high": high,
            "gap": None if score is None or gap is None else scale.gap(score, gap),
            "records_error": None if score is None or error is None else scale.gap(score - error, 2 * error) / 2,
        }
        for name, value in told.items():
            if name in rows:
                changed.at[index, name] = value
        changed.at[index, "below_noise"] = score is not None and told[ACCURACY] is None
    return changed


def table_with_typed_columns(table: pd.DataFrame) -> pd.DataFrame:
    """The table with columns of float where all values are numbers, and of bool where all are true or false."""

    def typed_column(column: pd.Series) -> pd.Series:
        values = [value for value in column if value is not None]
        if values and are_all_numbers(values):
            return pd.to_numeric(column).astype(float)
        return column.infer_objects()

    return table.apply(typed_column) if len(table) else table


def rows_scored_by(sweep: Sweep, metric: str) -> pd.DataFrame:
    """The rows of the map with the scores of this metric, which the counts of the sweep's own one give too.

    Raises `BadInput` if they do not give it.
    """
    if metric == sweep.metric:
        return sweep.map_rows
    also = {trial: (result.score or {}).get("also", {}) for trial, result in sweep.results_by_trial.items()}
    known = sorted({name for metrics in also.values() for name in metrics})
    if metric not in known:
        raise BadInput(
            f"Expected metric={metric} to be {' or '.join((sweep.metric, *known))}, which this sweep measured."
        )
    rows = sweep.map_rows
    scores = [also.get(trial, {}).get(metric, {}) for trial in rows["trial"]]
    columns = {name: [score.get(key) for score in scores] for name, key in _SCORES.items()}
    return rows.assign(**{name: pd.Series(values, dtype=object, index=rows.index) for name, values in columns.items()})


def first_noise_multiplier(trial: Trial) -> float | None:
    """The noise multiplier of a trial's first Gaussian step (it grows if the clip norm falls); None for other events.

    Its source is the event; a non-private event states no noise, so its trial's configuration is the source.
    """
    if events.are_same_events(trial.event.training, events.repeat(events.non_private(), trial.priced_steps)):
        noise: float = trial.config["privacy"]["noise_multiplier"]
        return noise
    noises = noise_multipliers_of_steps(trial)
    return None if None in noises else min((noise for noise in noises if noise is not None), default=None)


def noise_multipliers_of_steps(trial: Trial) -> list[float | None]:
    """The noise multiplier of each distinct step of a trial's event; None for a step that is not Gaussian."""
    leaves = [leaf for leaf, _ in mechanisms_with_counts(trial.event.training)]
    steps = (
        events.as_gaussian_step(leaf) or events.as_fixed_batch_step(leaf) or events.as_epoch(leaf) for leaf in leaves
    )
    return [None if step is None else step[-1] for step in steps]


def _table_of_runs(plan: Plan, runs: Runs) -> pd.DataFrame:
    axes = tuple(dict.fromkeys(key for trial in plan.trials for key in trial.axes))
    repeat = (REPEAT,) if any(REPEAT in trial.config for trial in plan.trials) else ()
    alone = Alone(plan=plan)
    rows = [_row_of_run(run, axes, alone) for run in runs.rows]
    top = max((row.score for row in runs.rows if row.score is not None), default=None)
    for row in rows:
        finished = top is not None and row["accuracy"] is not None and row["state"] == State.FINISHED
        row["gap"] = top - row["accuracy"] if finished else None
    columns = (
        *("trial", "method", *axes, *repeat, "noise_multiplier", "state", *_SCORES, "gap", *_RETURNED),
        *("attempts_charged", "attempts_started", "epsilon_alone", "conduct", "folder"),
    )
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in columns})


def _row_of_run(run: RunRecord, axes: Sequence[str], alone: Alone) -> dict[str, Any]:
    """A run's values by column; None where there is no result, or where the run has no such key."""
    trial, result = run.trial, run.result
    score = {} if result is None or result.score is None else result.score
    return {
        **{key: trial.axes.get(key) for key in axes},
        REPEAT: trial.config.get(REPEAT),
        **{name: score.get(key) for name, key in _SCORES.items()},
        **{name: None if result is None else getattr(result, field) for name, field in _RETURNED.items()},
        "trial": trial.id,
        "method": trial.method,
        "noise_multiplier": first_noise_multiplier(trial),
        "state": _state_of_run(result, run.started),
        "attempts_charged": run.charged,
        "attempts_started": run.started,
        "epsilon_alone": alone.epsilon(trial),
        "conduct": _run_conduct_against_declaration(trial, result),
        "folder": f"trials/{trial.id}",
    }


def _state_of_run(result: TrialResult | None, started: int) -> State:
    """The state of the latest attempt: if the result is of an earlier one, the latest was killed or still runs."""
    if result is None or result.attempt < started:
        return State.KILLED if started else State.NOT_RUN
    return State(result.status.value)


def _run_conduct_against_declaration(trial: Trial, result: TrialResult | None) -> Conduct:
    if result is None:
        return Conduct.NOTHING
    if result.event is None:
        broken = (result.error or "").startswith("ContractBroken")
        return Conduct.OTHERWISE if broken or result.status is not Status.FAILED else Conduct.UNKNOWN
    realised, declared = events.from_json(dict(result.event)), trial.event.training
    if took_declared_steps(realised, declared, least=trial.config["steps"]):
        return Conduct.AS_DECLARED
    if result.status is not Status.FINISHED and took_declared_steps(realised, declared, least=0):
        return Conduct.STOPPED_EARLY
    return Conduct.OTHERWISE


@dataclass(frozen=True, kw_only=True)
class Alone:
    """The epsilon of one run alone, computed once per distinct event."""

    plan: Plan
    quoted: dict[str, float | None] = field(default_factory=dict)

    @cached_property
    def _rule(self) -> SelectionRule:
        return rule_from_config(self.plan.rule)

    def epsilon(self, trial: Trial) -> float | None:
        """The upper bound on the trial's epsilon; None if no accountant has a proven bound."""
        event = event_of_run_alone(self._rule, trial.event)
        key = json.dumps([events.to_json(part) for part in event.events_by_population.values()], sort_keys=True)
        if key not in self.quoted:
            self.quoted[key] = None
            with suppress(UnsupportedEvent):
                panel = Panel(claimants=(Pld(), Rdp()))
                self.quoted[key] = panel.quote(event, self.plan.delta, self.plan.adjacency).epsilon
        return self.quoted[key]
