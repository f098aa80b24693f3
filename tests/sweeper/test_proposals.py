"""Sweeps whose points a sampler proposes: one charge beforehand, never more runs, and nothing lost to a crash."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

import optuna
import pytest

from accounting import events
from accounting.account import Attempts
from accounting.errors import BadInput, BudgetRefused, ContractBroken
from accounting.ledger import Ledger
from accounting.plan import Block, Plan, Trial
from accounting.proposals import read_proposals
from accounting.receipt import Receipt
from accounting.verify import verify_folder
from reports.page import write_report
from reports.release import write_release
from reports.table import read
from sweeper.admission import Retry
from sweeper.app import CONF
from sweeper.books import Work
from sweeper.locks import working
from sweeper.proposals import proposed_runs
from sweeper.samplers import Seen, propose
from tests.sweeper.searches import GRID, Compose, Place, Program, folder_of, released, result_of

SAMPLERS = sorted(path.stem for path in (CONF / "search").glob("*.yaml") if "optuna" in path.read_text())
SIX = (*GRID, "search=random", "search.trials=6")
WIDE = (*GRID, "trainer.lr=32,0.5,8,2", "trainer.regularizer=10,0.01,1,0.1")
"""Sixteen points, their values in no order."""


def begin(here: Place, retry: Retry = Retry.KILLED) -> Work:
    work = proposed_runs(here.priced, here.ledger, here.folder, retry)
    here.plan.write(here.folder.plan)
    return work


def run(here: Place, work: Work, runs: Sequence[Trial], fate: float | str | None = 0.5) -> None:
    """Does a job's work for these runs: a fate is a score, a status, or None for a job that dies."""
    for receipt, trial in zip(work.book.start(runs), runs, strict=True):
        folder = here.folder.trial(trial.id)
        receipt.write(folder)
        Receipt.claim(folder, plan=here.plan.id, trial=trial.id)
        if fate is not None:
            result_of(trial, fate, receipt.attempt).write(folder)
    work.book.settle()


def go_on(here: Place, work: Work, many: int = 1, fates: Iterator[Any] | None = None) -> int:
    """Runs what is due and then what is proposed, so many at a time; returns how many that were."""
    count, due = 0, work.due or work.more(many)
    while due:
        for trial in due:
            run(here, work, [trial], 0.5 if fates is None else next(fates))
        count, due = count + len(due), work.more(many)
    return count


def attempts(here: Place) -> Attempts:
    return here.ledger.statement("digits").attempts(here.plan.id)


def proposals(here: Place) -> tuple[int, ...]:
    return read_proposals(here.plan, here.folder.proposals)


def test_as_many_runs_are_priced_as_are_proposed_and_each_as_the_dearest(compose_priced: Compose) -> None:
    plan = compose_priced(SIX).plan
    assert len(plan.trials) == 4
    assert events.same(plan.event.training, events.repeat(plan.trials[0].event.training, 6))
    unequal = compose_priced([*SIX, "privacy.noise_multiplier=3,6"]).plan
    worst = events.worst(trial.event.training for trial in unequal.trials)
    assert events.same(unequal.event.training, events.repeat(worst, 6))
    assert "charges the worst" in unequal.notes[-1]
    finer = compose_priced([*SIX, "trainer.lr=1,2,3,4,5,6,7,8"])
    assert finer.quote == compose_priced(SIX).quote, "a finer grid costs nothing"


def test_the_noise_and_the_steps_meet_the_target_of_the_whole_search(compose_priced: Compose) -> None:
    line = ["dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "trainer=dpsgd", "search=tpe"]
    calibrated = compose_priced([*line, "search.trials=20", "privacy.epsilon=3"])
    assert 0.995 * 3 < calibrated.quote.epsilon <= 3
    assert calibrated.quote.parts["validation"] <= 3
    noisy = [*line, "search.trials=20", "privacy.noise_multiplier=20", "score.noise_std=60"]
    solved = compose_priced([*noisy, "solve=steps", "privacy.epsilon=4"])
    (steps,) = {trial.config["steps"] for trial in solved.plan.trials}
    assert solved.quote.epsilon <= 4
    assert compose_priced([*noisy, f"steps={steps + 1}"]).quote.epsilon > 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["search=tpe"], "Missing mandatory value: trials"),
        (["search=tpe", "search.trials=0"], r"search\.trials=0 to be an integer >= 1"),
        (["search=tpe", "search.trials=2.5"], r"search\.trials=2\.5"),
        (["+search.trials=5"], r"search\.trials to come with a sampler"),
        ([*SIX, "+search.foo=1"], "unexpected keyword argument 'foo'"),
        ([*SIX, "+search.seed=1"], r"search\.seed=1 not to be there"),
        ([*SIX, "search._target_=collections.Counter"], "one of Optuna's samplers"),
        ([*SIX, "+search.pruner=median"], r"search\.pruner=median not to be there: a run pays for all of its steps"),
        (["+search.pruner=median"], r"search\.pruner=median not to be there"),
        ([*SIX, "repeats=2"], "repeats=2 to be 1"),
        ([*SIX, "solve=points", "privacy.epsilon=1"], r"solve=points to be noise or steps: search\.trials=6"),
        (["search=tpe,random"], "Expected search to have one value"),
        ([*SIX, "trainer.lr=interval(1,2)"], "continuous interval"),
    ],
)
def test_what_is_no_search_is_one_sentence(compose_priced: Compose, arguments: list[str], reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as refusal:
        compose_priced([*GRID, *arguments])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ((SIX[-2], SIX[-1]), r"proposals=adaptive to be fixed: {} covers points from a list made beforehand"),
        (("+search.pruner=median",), r"pruning=True to be False: {} covers runs that do not depend on one another"),
    ],
)
@pytest.mark.parametrize("rule", ["private_selection", "noisy_max"])
def test_a_rule_that_hides_scores_refuses_with_its_reason(
    compose_priced: Compose, asked: Sequence[str], reason: str, rule: str
) -> None:
    with pytest.raises(BadInput, match=reason.format(rule) + ".*tuning=composition"):
        compose_priced([*GRID, f"tuning={rule}", *asked])


def test_auto_takes_no_rule_that_refuses_proposals(compose_priced: Compose) -> None:
    assert compose_priced([*GRID, "tuning=auto", "show=winner"]).rule.name != "composition"
    proposed = compose_priced([*SIX, "tuning=auto", "show=winner"])
    assert proposed.rule.name == "composition"
    assert {rule.name for rule in proposed.offers.values()} == {"composition"}


def test_the_charge_names_no_run_and_pays_for_every_turn(place: Callable[..., Place]) -> None:
    here = place([*SIX, "plan.spare_attempts=1"])
    work = begin(here)
    (charge,) = attempts(here).charges
    assert charge.body["trials"] == []
    assert charge.body["spares"] == 7
    assert charge.body["epsilon"] == here.priced.quote.epsilon
    assert work.due == ()
    assert proposals(here) == (), "nothing is proposed before it can be run"
    assert go_on(here, work) == 6
    assert work.more(99) == ()
    assert attempts(here).spares == 1
    assert len(proposals(here)) == len(work.runs) == work.total == 6
    before = here.ledger.statement("digits").entries
    again = begin(here)
    assert go_on(here, again) == 0
    assert here.ledger.statement("digits").entries == before


def test_what_does_not_fit_is_refused_and_says_how_many_runs_would(place: Callable[..., Place]) -> None:
    here = place([*GRID, "search=random", "search.trials=100", "budget.epsilon=12"])
    with pytest.raises(BudgetRefused, match=r"What would fit: \d+ of these 100 runs"):
        begin(here)
    assert attempts(here).charges == ()
    assert not here.folder.proposals.exists()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_of_the_configuration_runs_whatever_becomes_of_its_runs(
    place: Callable[..., Place], sampler: str
) -> None:
    line = ["dataset=digits", "model=logistic,one_hidden", "steps=3", "accountant=rdp", "accountant.witnesses=[]"]
    here = place([*line, f"search={sampler}", "search.trials=14"])
    fates = iter([0.3, "failed", None, "diverged", 0.8, 0.5, 0.4] * 2)
    assert go_on(here, begin(here, Retry.NONE), many=3, fates=fates) == 14
    known = attempts(here)
    assert known.spares == 0
    assert sum(known.started.values()) == 14
    assert {here.plan.trials[point].method for point in proposals(here)} == {"dpnsgd", "dpsgd"}


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
        point = propose(plan, seen)
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
    assert proposed("null") != proposed("null")


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
    assert (first.id, second.id) == tuple(run.id for run in work.runs[4:])
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
    with working(here.folder.trial(orphan.id)):
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


def test_what_was_proposed_before_a_crash_runs_and_nothing_else(place: Callable[..., Place]) -> None:
    here = place(SIX)
    stored = begin(here).more(2)
    work = begin(here)
    assert work.due == stored
    assert work.more(2) == (), "nothing more is proposed while a run waits"
    run(here, work, work.due[:1])
    resumed = begin(here)
    assert resumed.due == stored[1:]
    assert go_on(here, resumed, many=4) == 5
    assert proposals(here)[:2] == tuple(here.plan.trials.index(point_of(here, trial)) for trial in stored)
    assert sum(attempts(here).started.values()) == 6


def point_of(here: Place, run: Trial) -> Trial:
    return next(trial for trial in here.plan.trials if trial.axes == run.axes)


def test_nothing_is_proposed_while_the_sweep_is_being_stopped(place: Callable[..., Place]) -> None:
    here = place(SIX)
    work = begin(here)
    here.folder.stop.touch()
    assert work.more(1) == ()
    here.folder.stop.unlink()
    assert len(work.more(1)) == 1


@pytest.mark.parametrize("spares", [0, 1])
def test_a_killed_run_is_repeated_without_taking_a_turn(place: Callable[..., Place], spares: int) -> None:
    """A spare attempt pays for it, or a new charge; the turns to come are kept."""
    here = place([*SIX, f"plan.spare_attempts={spares}"])
    work = begin(here)
    killed = work.more(2)
    run(here, work, killed[:1])
    run(here, work, killed[1:], fate=None)
    again = begin(here)
    assert again.due == killed[1:]
    assert [charge.body["reason"] for charge in attempts(here).charges] == ["plan"] + ["repeat"] * (1 - spares)
    if not spares:
        assert attempts(here).charges[1].body["trials"] == [killed[1].id]
        assert attempts(here).charges[1].body["epsilon"] < here.priced.quote.epsilon
    assert go_on(here, again) == 5
    assert attempts(here).started[killed[1].id] == 2
    assert len(again.book.standing().finished) == 6
    assert attempts(here).spares == 0
    with pytest.raises(ContractBroken, match="covered by no charge"):
        again.book.start(killed[:1])
    assert "6 of 6 runs were proposed; 6 of 6 results" in verify_folder(here.folder.root, here.ledger)


def test_a_killed_run_that_is_not_paid_for_again_has_used_its_turn(place: Callable[..., Place]) -> None:
    here = place(SIX)
    work = begin(here)
    run(here, work, work.more(1), fate=None)
    again = begin(here, Retry.NONE)
    assert again.due == ()
    assert go_on(here, again) == 5
    assert len(attempts(here).charges) == 1


def test_a_deleted_folder_is_a_new_charge_for_what_had_begun(place: Callable[..., Place]) -> None:
    here = place(SIX)
    go_on(here, begin(here), fates=iter([0.5] * 3 + [None] * 3))
    before, lost = here.ledger.statement("digits").reserved, proposals(here)
    shutil.rmtree(here.folder.root)
    again = begin(here)
    assert proposals(here) == lost, "the ledger knows what had begun"
    assert {trial.id for trial in again.due} == set(attempts(here).started)
    assert here.ledger.statement("digits").reserved[0] == pytest.approx(2 * before[0])
    assert go_on(here, again) == 6


def test_what_has_not_begun_when_its_folder_is_deleted_costs_nothing_more(place: Callable[..., Place]) -> None:
    here = place(SIX)
    work = begin(here)
    run(here, work, work.more(1))
    work.more(1)
    here.folder.proposals.unlink()
    again = begin(here)
    assert len(proposals(here)) == 1
    assert go_on(here, again) == 5
    assert len(attempts(here).charges) == 1


def test_a_sampler_that_can_not_propose_is_found_out_before_the_charge(place: Callable[..., Place]) -> None:
    here = place([*GRID, "search=tpe", "search.trials=9", "search.n_startup_trials=5", "+search.n_ei_candidates=many"])
    with pytest.raises(BadInput, match="Expected search to be a sampler that proposes points"):
        begin(here)
    assert here.ledger.accounts() == ()


def test_a_run_that_nobody_proposed_contradicts_the_plan(place: Callable[..., Place]) -> None:
    here = place(SIX)
    go_on(here, begin(here))
    assert "all paid" in verify_folder(here.folder.root, here.ledger)
    form = json.loads(here.folder.proposals.read_text())
    here.folder.proposals.write_text(json.dumps(form | {"proposals": form["proposals"][:5]}))
    with pytest.raises(ContractBroken, match="without having been proposed"):
        verify_folder(here.folder.root, here.ledger)


def test_a_page_shows_which_points_were_tried_how_often_and_who_proposed_them(place: Callable[..., Place]) -> None:
    here = place([*WIDE, "search=tpe", "search.trials=12", "seed=3"])
    go_on(here, begin(here), fates=iter([None, "failed", *(0.4 + place / 50 for place in range(10))]))
    page = write_report(here.folder.root, here.ledger).read_text()
    tried = proposals(here)
    assert len(set(tried)) < len(tried) < len(here.plan.trials)
    assert page.count("not tried") > len(here.plan.trials) - len(set(tried))
    assert "mean of 2 runs" in page
    assert '<span data-fact="points_finished">10</span> <small>of <span data-fact="runs">12</span> finished' in page
    assert "\N{MULTIPLICATION SIGN}2" in (here.folder.root / "curator" / "heatmap.svg").read_text()
    keys = ("trainer.regularizer", "trainer.lr")
    cells = read(here.folder.root, here.ledger).cells[list(keys)]
    in_order = list(dict.fromkeys(map(tuple, cells.to_numpy().tolist())))
    assert in_order == [tuple(trial.axes[key] for key in keys) for trial in here.plan.trials]
    assert "12 runs proposed among 16 points of DP-NSGD" in page
    assert "TPESampler proposed which points were run, from the noisy scores of the runs before" in page
    assert "Every run was charged before it started" in page
    form = json.loads((here.folder.root / "curator" / "report.json").read_text())
    assert [row["accuracy"] for row in form["trials"]["rows"]][2:] == [0.4 + place / 50 for place in range(10)]
    assert form["facts"]["runs_to_come"]["value"] == 0


def test_a_release_shows_every_run_and_no_more(place: Callable[..., Place]) -> None:
    here = place(SIX)
    work = begin(here)
    for fate in (0.5, 0.6, "failed"):
        run(here, work, work.more(1), fate)
    files = released(here)
    assert files["trials.csv"].decode().splitlines()[0].startswith("run,method,")
    assert len(files["trials.csv"].decode().splitlines()) == 4
    assert "not tried" in files["report.html"].decode()
    assert "Their number, 6, was fixed beforehand" in files["report.html"].decode()


@pytest.mark.long
def test_a_search_from_command_to_release_and_back_again(program: Program, ledger: Ledger) -> None:
    """Two workers, so proposals come in pairs."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    line = [*SIX, "search=tpe", "search.n_startup_trials=2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    planned = program("plan", *line, module="sweeper.cli")
    assert planned.returncode == 0, planned.stderr
    assert "6, of the points that TPESampler proposes" in " ".join(planned.stdout.split())
    folder = folder_of(program(*line))
    plan = Plan.read(folder.plan)
    assert len(folder.runs(plan)) == 6
    assert not folder.draw.exists()
    study = optuna.load_study(study_name=f"digits-{plan.id}", storage=f"sqlite:///{folder.study}")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 6
    again = program(*line)
    assert "nothing is run or charged" in again.stdout
    assert "6 of 6 runs were proposed; 6 of 6 results are there, all paid" in verify_folder(folder.root, ledger)
    assert write_release(folder.root, ledger).is_file()
