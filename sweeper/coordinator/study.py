"""Record of the runs as an Optuna study: for optuna-dashboard, or in a database of the user's.

Optuna only stores the record: its own retries, which would read the data without a request, are not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.selection.rules import rule_from_config
from dpsweep.sweeper.planning.optuna_samplers import METHOD

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import CategoricalDistribution


def record_results_in_study(
    plan: Plan, folder: SweepFolder, runs: Sequence[Trial], results: Sequence[TrialResult], address: str | None = None
) -> None:
    """Adds the results of these runs that the study does not hold yet; no result is added twice.

    `address` is the study's database; None: a journal file in the sweep's folder, for optuna-dashboard.
    """
    from optuna.storages import JournalStorage

    from dpsweep.sweeper.coordinator.study_journal import StudyJournal

    trials, space = {trial.id: trial for trial in runs}, _distributions_by_axis(plan)
    with _database_errors_as_bad_input(folder, address):
        journal = StudyJournal.from_file_or_empty(folder.optuna_study_path) if address is None else StudyJournal()
        study = _open_or_create_study(plan, JournalStorage(journal) if address is None else address)
        objective = plan.trials[0].config.get("score", {}).get("metric", "accuracy")
        if study.user_attrs.get("objective") != objective:
            study.set_user_attr("objective", objective)
        known = {(trial.user_attrs["trial"], trial.user_attrs["attempt"]) for trial in study.get_trials(deepcopy=False)}
        new = [result for result in results if (result.trial, result.attempt) not in known]
        study.add_trials(
            [_frozen_trial(result, _study_parameters_of_trial(trials[result.trial]), space) for result in new]
        )
        if address is None and (new or not folder.optuna_study_path.exists()):
            journal.write_file_if_lines_added(folder.optuna_study_path)


def require_reachable_study(plan: Plan, folder: SweepFolder, address: str) -> None:
    """Opens or creates the plan's study in this database.

    Raises `BadInput` if that fails, and if a shared study would show what the plan's rule hides.
    """
    if rule_from_config(plan.rule).hides_losers:
        raise BadInput(
            f"Expected hydra.sweeper.study={address} to be null under a rule that hides its losers: whoever may look "
            "into the study sees how many tries there were, and how each did."
        )
    with _database_errors_as_bad_input(folder, address):
        _open_or_create_study(plan, address)


def _open_or_create_study(plan: Plan, storage: str | optuna.storages.BaseStorage) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    name = f"{plan.account}-{plan.id}"
    return optuna.create_study(study_name=name, storage=storage, direction="maximize", load_if_exists=True)


@contextmanager
def _database_errors_as_bad_input(folder: SweepFolder, address: str | None) -> Iterator[None]:
    """Turns an error of the study's database into `BadInput` with one sentence and without a password."""
    try:
        yield
    except Exception as cause:
        reason = f"{cause}".partition("\n")[0]
        if address is None:
            raise BadInput(
                f"Expected {folder.optuna_study_path} to be a study that can be written: {reason}. Once it is removed, "
                "the same "
                "command writes it anew."
            ) from cause
        shown = re.sub(r"//[^/]*@", "//", address)
        raise BadInput(f"Expected hydra.sweeper.study={shown} to be a study that can be written: {reason}") from cause


def _distributions_by_axis(plan: Plan) -> dict[str, CategoricalDistribution]:
    """Every axis with its values over the whole plan: Optuna requires one distribution per name."""
    from optuna.distributions import CategoricalDistribution

    space: dict[str, dict[Any, None]] = {}
    for trial in plan.all_runs:
        for key, value in _study_parameters_of_trial(trial).items():
            space.setdefault(key, {})[value] = None
    return {key: CategoricalDistribution(tuple(values)) for key, values in space.items()}


def _study_parameters_of_trial(trial: Trial) -> dict[str, Any]:
    """A point's parameters in the study; lists become text, since an Optuna category is a plain value."""
    axes = {METHOD: trial.method, **trial.axes}
    return {key: json.dumps(value) if isinstance(value, (list, dict)) else value for key, value in axes.items()}


def _frozen_trial(
    result: TrialResult, params: Mapping[str, Any], space: Mapping[str, CategoricalDistribution]
) -> optuna.trial.FrozenTrial:
    import optuna

    failed = result.status is Status.FAILED or result.score_value is None
    return optuna.trial.FrozenTrial(  # `create_trial` compares each distribution with a copy of itself
        number=-1,
        trial_id=-1,
        state=optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE,
        value=None if failed else result.score_value,
        datetime_start=datetime.fromisoformat(result.started).astimezone().replace(tzinfo=None),
        datetime_complete=datetime.fromisoformat(result.ended).astimezone().replace(tzinfo=None),
        params=dict(params),
        distributions={key: space[key] for key in params},
        user_attrs={"trial": result.trial, "attempt": result.attempt, "status": result.status.value},
        system_attrs={},
        intermediate_values={},
    )
