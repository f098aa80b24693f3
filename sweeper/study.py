"""The sweep as an Optuna study, for optuna-dashboard and for whoever thinks in studies: the one door to Optuna.

Optuna records what was run; it never decides how many runs happen, and its own retries, which would touch the data
unasked, are not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from accounting.plan import Plan, Trial
from accounting.result import Status, TrialResult
from sweeper.folder import SweepFolder

if TYPE_CHECKING:
    import optuna


def record(plan: Plan, folder: SweepFolder, runs: Sequence[Trial], results: Sequence[TrialResult]) -> None:
    """Adds the results of these runs that the study does not hold yet; the same result is never added twice."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        study_name=f"{plan.account}-{plan.id}",
        storage=f"sqlite:///{folder.study}",
        direction="maximize",
        load_if_exists=True,
    )
    known = {(trial.user_attrs["trial"], trial.user_attrs["attempt"]) for trial in study.get_trials(deepcopy=False)}
    space = _space(plan)
    trials = {trial.id: trial for trial in runs}
    for result in results:
        if (result.trial, result.attempt) not in known:
            study.add_trial(
                _frozen(result, {"method": trials[result.trial].method, **trials[result.trial].axes}, space)
            )


def _space(plan: Plan) -> dict[str, tuple[Any, ...]]:
    """Every axis with its values over the whole plan: Optuna wants one distribution per name."""
    space: dict[str, dict[Any, None]] = {}
    for trial in plan.trials:
        for key, value in {"method": trial.method, **trial.axes}.items():
            space.setdefault(key, {})[value] = None
    return {key: tuple(values) for key, values in space.items()}


def _frozen(
    result: TrialResult, params: Mapping[str, Any], space: Mapping[str, tuple[Any, ...]]
) -> optuna.trial.FrozenTrial:
    import optuna

    failed = result.status is Status.FAILED or result.score is None
    trial = optuna.trial.create_trial(
        state=optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE,
        value=None if failed or result.score is None else result.score["value"],
        params=dict(params),
        distributions={key: optuna.distributions.CategoricalDistribution(space[key]) for key in params},
        user_attrs={"trial": result.trial, "attempt": result.attempt, "status": result.status.value},
    )
    trial.datetime_start = datetime.fromisoformat(result.started).astimezone().replace(tzinfo=None)
    trial.datetime_complete = datetime.fromisoformat(result.ended).astimezone().replace(tzinfo=None)
    return trial
