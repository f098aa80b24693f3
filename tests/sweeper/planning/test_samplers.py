"""Samplers: what they are told and learn, and that they propose what the grid has and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

import optuna
import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.job.locks import training_lock
from dpsweep.sweeper.planning.optuna_samplers import Seen, propose_next_point_index
from dpsweep.sweeper.searches.admission import Retry
from tests.sweeper.proposing import SIX, WIDE, attempts, begin, go_on, proposals, run
from tests.sweeper.search_programs import GRID, Compose, Place

SAMPLERS = sorted(path.stem for path in (CONF / "search").glob("*.yaml") if "optuna" in path.read_text())


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_of_the_configuration_runs_whatever_becomes_of_its_runs(
    place: Callable[..., Place], sampler: str
) -> None:
    line = ["dataset=digits", "model=logistic,one_hidden", "steps=3", "accountant=rdp", "accountant.witnesses=[]"]
    here = place([*line, f"search={sampler}", "search.trials=14", "seed=1"])
    fates = iter([0.3, "failed", None, "diverged", 0.8, 0.5, 0.4] * 2)
    assert go_on(here, begin(here, Retry.NONE), many=3, fates=fates) == 14
    known = attempts(here)
    assert known.spares == 0
    assert sum(known.started.values()) == 14
    assert {here.plan.trials[point].method for point in proposals(here)} == {"dpnsgd", "dpsgd"}


def test_a_sampler_that_can_not_propose_is_found_out_before_the_charge(place: Callable[..., Place]) -> None:
    here = place([*GRID, "search=tpe", "search.trials=9", "search.n_startup_trials=5", "+search.n_ei_candidates=many"])
    with pytest.raises(BadInput, match="Expected search to be a sampler that proposes points"):
        begin(here)
    assert here.ledger.account_names() == ()


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_samplers_learn_where_scores_are_high(compose_priced: Compose, sampler: str) -> None:
    """Of sixteen points, those around the best one are proposed far more often than by chance."""
    plan = compose_priced([*WIDE, f"search={sampler}", "search.trials=26", "seed=1"]).plan
    seen = learn(plan, 26, score=lambda trial: 0.9 - distance(trial) / 10)
    near = [distance(plan.trials[one.point]) <= 1 for one in seen[10:]]
    assert sum(near) >= 10, "by chance it would be 5 of 16"


def distance(trial: Trial) -> int:
    """Steps of the grid from lr 8, regularizer 0.1, had its values been in order."""
    return abs((0.5, 2, 8, 32).index(trial.axes["trainer.lr"]) - 2) + abs(
        (0.01, 0.1, 1, 10).index(trial.axes["trainer.regularizer"]) - 1
    )


def learn(plan: Plan, turns: int, score: Callable[[Trial], float | None]) -> list[Seen]:
    seen: list[Seen] = []
    for _ in range(turns):
        point = propose_next_point_index(plan, seen)
        seen.append(Seen(point=point, ended=True, score=score(plan.trials[point])))
    return seen


def test_what_a_grid_lacks_is_never_proposed(compose_priced: Compose) -> None:
    whole = compose_priced([*SIX, "seed=1"]).plan
    kept = Block(trials=whole.trials[:2] + whole.trials[3:])
    holed = replace(whole, blocks=(kept,))
    assert {one.point for one in learn(whole, 30, score=lambda trial: 0.5)} == {0, 1, 2, 3}
    assert {one.point for one in learn(holed, 30, score=lambda trial: 0.5)} == {0, 1, 2}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_with_a_seed_the_same_scores_give_the_same_proposals(compose_priced: Compose, sampler: str) -> None:
    def proposed(seed: str) -> list[int]:
        plan = compose_priced([*WIDE, f"search={sampler}", "search.trials=12", f"seed={seed}"]).plan
        return [one.point for one in learn(plan, 12, score=lambda trial: 0.1 * distance(trial))]

    first = proposed("1")
    assert proposed("1") == first
    assert proposed("2") != first


@pytest.mark.randomized(
    draws="12 proposals, 10 of them uniform among 16 points", bound="all are the same", false_alarm=16.0**-10
)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_without_a_seed_proposals_differ(compose_priced: Compose, sampler: str) -> None:
    plan = compose_priced([*WIDE, f"search={sampler}", "search.trials=12"]).plan
    one, other = (learn(plan, 12, score=lambda trial: 0.1 * distance(trial)) for _ in range(2))
    assert one != other


class Spy(optuna.samplers.RandomSampler):
    """Writes down what a sampler is told."""

    told: ClassVar[list[list[optuna.trial.FrozenTrial]]] = []

    def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        self.told.append(study.get_trials()[:-1])
        return super().sample_independent(study, trial, name, distribution)


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> str:
    module = ModuleType("samplers_of_this_test")
    module.Spy = Spy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Spy, "told", [])
    return f"search._target_={module.__name__}.Spy"


def test_samplers_are_told_scores_and_failures_and_which_runs_go_on(place: Callable[..., Place], spied: str) -> None:
    here = place([*SIX, spied])
    work = begin(here)
    for fate in (0.7, "failed", "diverged", None):
        run(here, work, work.more(1), fate)
    first, second = work.more(2)
    told = Spy.told[-1]
    assert [(trial.state.name, trial.value) for trial in told] == [
        ("COMPLETE", 0.7),
        ("FAIL", None),
        ("COMPLETE", 0.0),
        ("FAIL", None),
        ("RUNNING", None),
    ]
    assert (first.id, second.id) == tuple(run.id for run in work.known_runs[4:])
    for trial, point in zip(told, proposals(here), strict=False):
        axes = here.plan.trials[point].axes
        assert trial.params == {
            "method": "dpnsgd",
            "dpnsgd trainer.lr": (2, 8).index(axes["trainer.lr"]),
            "dpnsgd trainer.regularizer": (0.1, 1).index(axes["trainer.regularizer"]),
        }
        assert isinstance(trial.distributions["dpnsgd trainer.lr"], optuna.distributions.IntDistribution)


def test_a_run_that_a_lost_job_is_still_at_is_no_failure(place: Callable[..., Place], spied: str) -> None:
    here = place([*SIX, spied])
    work = begin(here)
    (orphan,) = work.more(1)
    run(here, work, [orphan], fate=None)
    with training_lock(here.folder.trial_folder(orphan.id)):
        assert begin(here).due == ()
        work.more(1)
    assert [trial.state.name for trial in Spy.told[-1]] == ["RUNNING"]


def test_names_have_no_order_and_numbers_have_theirs(compose_priced: Compose, spied: str) -> None:
    line = ["model=one_hidden,logistic", "trainer.lr=8,2,32", "trainer.regularizer=0.1", "search.trials=9"]
    plan = compose_priced([*SIX, *line, spied]).plan
    seen = learn(plan, 9, score=lambda trial: 0.5)
    last = Spy.told[-1]
    model, rate = (last[0].distributions[f"dpnsgd {axis}"] for axis in ("model", "trainer.lr"))
    assert isinstance(model, optuna.distributions.CategoricalDistribution)
    assert rate == optuna.distributions.IntDistribution(0, 2)
    told = [(trial.params["dpnsgd model"], trial.params["dpnsgd trainer.lr"]) for trial in last]
    axes = [plan.trials[one.point].axes for one in seen]
    names, rates = ("one_hidden", "logistic"), (2, 8, 32)
    assert told == [(names.index(one["model"]), rates.index(one["trainer.lr"])) for one in axes[: len(told)]]
