"""Sweeps whose points a sampler proposes: one charge beforehand, never more runs, and nothing lost to a crash."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence

import pytest

from dpsweep.accounting.errors import BadInput, BudgetRefused, ContractBroken
from dpsweep.accounting.events import build as events
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.accounting.searches.interface import search_for_plan
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.searches.admission import Retry
from tests.randomized import TRAINS
from tests.studies import study_in
from tests.sweeper.proposing import SIX, WIDE, attempts, begin, go_on, proposals, run
from tests.sweeper.search_programs import GRID, Compose, Place, Program, folder_of, released


def test_as_many_runs_are_priced_as_are_proposed_and_each_as_the_dearest(compose_priced: Compose) -> None:
    plan = compose_priced(SIX).plan
    assert len(plan.trials) == 4
    assert events.are_same_events(plan.event.training, events.repeat(plan.trials[0].event.training, 6))
    unequal = compose_priced([*SIX, "privacy.noise_multiplier=3,6"]).plan
    worst = events.worst_of_events(trial.event.training for trial in unequal.trials)
    assert events.are_same_events(unequal.event.training, events.repeat(worst, 6))
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
        (["search=tpe", "search.trials=0"], r"search\.trials=0 to be an integer from 1"),
        (["search=tpe", "search.trials=2.5"], r"search\.trials=2\.5"),
        (["+search.trials=5"], r"search\.trials to come with a sampler"),
        ([*SIX, "+search.foo=1"], "unexpected keyword argument 'foo'"),
        ([*SIX, "+search.seed=1"], r"search\.seed=1 not to be there"),
        ([*SIX, "search._target_=collections.Counter"], "one of Optuna's samplers"),
        ([*SIX, "+search.pruner=median"], r"search\.pruner=median to be left out: a run pays for all of its steps"),
        (["+search.pruner=median"], r"search\.pruner=median to be left out"),
        ([*SIX, "repeats=2"], "2 runs of each point to be one"),
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
        ((SIX[-2], SIX[-1]), r"proposals=adaptive to be fixed under {}: its tries are independent"),
        (("+search.pruner=median",), r"pruning=True to be False under {}: its tries are independent"),
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
    assert {rule.name for rule in proposed.offers().values()} == {"composition"}


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
    assert len(proposals(here)) == len(work.known_runs) == work.total == 6
    before = here.ledger.statement("digits").entries
    again = begin(here)
    assert go_on(here, again) == 0
    assert here.ledger.statement("digits").entries == before


def test_what_does_not_fit_is_refused_and_says_how_many_runs_would(place: Callable[..., Place]) -> None:
    here = place([*GRID, "search=random", "search.trials=100", "budget.epsilon=12"])
    with pytest.raises(BudgetRefused, match=r"What would fit: \d+ of these 100 runs"):
        begin(here)
    assert attempts(here).charges == ()
    assert not here.folder.proposals_path.exists()


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


def test_a_run_is_proposed_for_a_free_worker_beside_runs_that_have_not_begun(place: Callable[..., Place]) -> None:
    """As many may wait as there are other workers; more of them only where the launcher does not work."""
    here = place(SIX)
    work = begin(here)
    first, second = work.more(2)
    for receipt in work.log.start_and_issue_receipts([first]):
        receipt.write(here.folder.trial_folder(first.id))
    assert {run.id for run in work.log.states_of_runs().fresh} == {first.id, second.id}
    assert work.more(1) == work.refill(1) == ()
    assert len(work.refill(2)) == 1
    assert len(proposals(here)) == 3


def point_of(here: Place, run: Trial) -> Trial:
    return next(trial for trial in here.plan.trials if trial.axes == run.axes)


def test_nothing_is_proposed_while_the_sweep_is_being_stopped(place: Callable[..., Place]) -> None:
    here = place(SIX)
    work = begin(here)
    here.folder.stop_file_path.touch()
    assert work.more(1) == ()
    here.folder.stop_file_path.unlink()
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
    assert len(again.log.states_of_runs().finished) == 6
    assert attempts(here).spares == 0
    with pytest.raises(ContractBroken, match="covered by no charge"):
        again.log.start_and_issue_receipts(killed[:1])
    assert "6 of 6 runs were proposed; 6 of 6 results" in verify_sweep_folder_and_describe(
        here.folder.root, here.ledger
    )


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
    before, lost = reserved_amounts(here.ledger.statement("digits")), proposals(here)
    shutil.rmtree(here.folder.root)
    again = begin(here)
    assert proposals(here) == lost, "the ledger knows what had begun"
    assert {trial.id for trial in again.due} == set(attempts(here).started)
    assert reserved_amounts(here.ledger.statement("digits"))[0] == pytest.approx(2 * before[0])
    assert go_on(here, again) == 6


def test_what_has_not_begun_when_its_folder_is_deleted_costs_nothing_more(place: Callable[..., Place]) -> None:
    here = place(SIX)
    work = begin(here)
    run(here, work, work.more(1))
    work.more(1)
    here.folder.proposals_path.unlink()
    again = begin(here)
    assert len(proposals(here)) == 1
    assert go_on(here, again) == 5
    assert len(attempts(here).charges) == 1


def test_a_run_that_nobody_proposed_contradicts_the_plan(place: Callable[..., Place]) -> None:
    here = place(SIX)
    go_on(here, begin(here))
    assert "all paid" in verify_sweep_folder_and_describe(here.folder.root, here.ledger)
    form = json.loads(here.folder.proposals_path.read_text())
    here.folder.proposals_path.write_text(json.dumps(form | {"proposals": form["proposals"][:5]}))
    with pytest.raises(ContractBroken, match="without having been proposed"):
        verify_sweep_folder_and_describe(here.folder.root, here.ledger)


@pytest.mark.long
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
    cells = read_sweep(here.folder.root, here.ledger).map_rows[list(keys)]
    in_order = list(dict.fromkeys(map(tuple, cells.to_numpy().tolist())))
    assert in_order == [tuple(trial.axes[key] for key in keys) for trial in here.plan.trials]
    assert "12 runs proposed among 16 points of DP-NSGD" in page
    assert "TPESampler proposed the point of each run from the noisy scores of earlier runs" in page
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
    assert "runs, 6, was fixed beforehand" in files["report.html"].decode()


@TRAINS
@pytest.mark.long
def test_a_search_from_command_to_release_and_back_again(fresh_program: Program, ledger: Ledger) -> None:
    """Two workers, so proposals come in pairs."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    line = [*SIX, "search=tpe", "search.n_startup_trials=2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    planned = fresh_program("plan", *line, module="dpsweep.sweeper.commands.cli")
    assert planned.returncode == 0, planned.stderr
    assert "6, of the points that TPESampler proposes" in " ".join(planned.stdout.split())
    folder = folder_of(fresh_program(*line))
    plan = Plan.read(folder.plan_path)
    assert len(search_for_plan(plan, folder).search_and_final_runs()) == 6
    assert not folder.draw_path.exists()
    study = study_in(folder.optuna_study_path)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 6
    again = fresh_program(*line)
    assert "nothing is run or charged" in again.stdout
    assert "6 of 6 runs were proposed; 6 of 6 results are there, all paid" in verify_sweep_folder_and_describe(
        folder.root, ledger
    )
    assert write_release(folder.root, ledger).is_file()
