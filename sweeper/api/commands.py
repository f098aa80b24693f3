"""`dpsweep.plan`, `sweep`, `rehearse` and `results`: the verbs of the command line as functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.rehearsal import ledger_of
from dpsweep.reports.content import sweep_table
from dpsweep.sweeper.api.hydra_session import requested
from dpsweep.sweeper.api.sweep_results import SweepResults
from dpsweep.sweeper.commands.sweep_coordinator import SweepCoordinator
from dpsweep.sweeper.planning.plan_builder import compose_plan
from dpsweep.sweeper.request.sweep_request import Verb


@dataclass(frozen=True, kw_only=True)
class PlannedSweep:
    """The price of a search that has not run.

    With secret noise (without `seed=`) the whole search would satisfy (`epsilon`, `delta`)-differential privacy on the
    data set `account`; `epsilon` is an upper bound. `points` has a row for each trial: its method, its hyperparameters
    and its noise multiplier.
    """

    id: str
    account: str
    epsilon: float
    delta: float
    points: pd.DataFrame
    folder: Path


def plan(overrides: Sequence[str] = ()) -> PlannedSweep:
    """The price of a sweep with these overrides, as `dpsweep plan` finds it; writes nothing and charges nothing.

    `overrides` are words of the command line, such as `["dataset=digits", "trainer.lr=0.5,1,2"]`. Raises `BadInput` for
    a word that the configuration does not take.
    """
    with requested(Verb.PLAN, overrides) as request:
        priced = compose_plan(request.points, request.plan)
        folder = request.jobs.of_plan(priced.plan.id).folder
    rows = [
        {"method": trial.method, **trial.settings, "noise_multiplier": sweep_table.noise_multiplier(trial)}
        for trial in priced.plan.trials
    ]
    return PlannedSweep(
        id=priced.plan.id,
        account=priced.plan.account,
        epsilon=priced.quote.epsilon,
        delta=priced.plan.delta,
        points=pd.DataFrame(rows),
        folder=folder,
    )


def sweep(overrides: Sequence[str] = ()) -> SweepResults:
    """Prices, charges, trains and reports a grid, as `dpsweep sweep` does, and returns its results.

    The same overrides again train only what is missing and charge nothing more. Raises `BadInput` for a wrong word and
    `BudgetRefused` where the account has less left, both before anything is charged; `KeyboardInterrupt` where the user
    stopped the sweep: what had started stays charged, and the same call goes on.
    """
    return _run(Verb.SWEEP, overrides)


def rehearse(overrides: Sequence[str] = ()) -> SweepResults:
    """Does all that `sweep` does on generated records and a scratch budget: nothing real is read, charged or released.

    Shapes and sizes come from the configuration alone. The results say `rehearsal`.
    """
    return _run(Verb.REHEARSE, overrides)


def _run(verb: Verb, overrides: Sequence[str]) -> SweepResults:
    with requested(verb, overrides) as request:
        coordinator = SweepCoordinator(request)
        priced = compose_plan(request.points, request.plan)
        if coordinator.charge_and_run(priced) is ExitCode.STOPPED:
            raise KeyboardInterrupt
        folder = request.jobs.of_plan(priced.plan.id).folder
    return results(folder)


def results(folder: Path | str) -> SweepResults:
    """The results of the sweep in a folder, as far as its rule discloses them.

    Raises `BadInput` if the folder holds no plan, or one that the ledger (`DPSWEEP_LEDGER`) has not charged.
    """
    return SweepResults(sweep_table.read(Path(folder), ledger_of(Path(folder))))
