"""`dpsweep budget`: what an account shows, and that it changes by explicit commands on the record alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, BudgetRefused, LedgerDamaged
from dpsweep.accounting.events.build import PlanEvent, best_of_tries, compose, gaussian, poisson_gaussian, repeat
from dpsweep.accounting.events.trial_counts import NegativeBinomial
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import Addition, Policy
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.renyi_filter import RenyiFilter
from dpsweep.accounting.ledger.statement import remaining_amounts, reserved_amounts
from dpsweep.accounting.ledger.upkeep import charge_outside, verify_entries
from dpsweep.sweeper.commands.account_statement import further_runs_that_fit
from dpsweep.sweeper.commands.budget import VERBS, budget
from dpsweep.sweeper.commands.hydra_app import CONF
from tests.charges import charge_event, start_attempts
from tests.conftest import Program
from tests.forked_programs import Run

Say = Callable[..., str]

BUDGET = Guarantee(epsilon=24.0, delta=1e-4)
FILTER = RenyiFilter(order=4.0, epsilon=20.0, delta=9e-5)
RENYI = ("policy=renyi", "policy.order=4", "policy.epsilon=20", "policy.delta=9e-5")
OUTSIDE = ("charge", "dataset=digits", "--epsilon", "2", "--delta", "1e-6", "--note", "a pilot study, in 2021")


@pytest.fixture
def say(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """`dpsweep budget WORDS...` within this process: what it prints."""
    monkeypatch.setenv("DPSWEEP_LEDGER", str(ledger.path))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> str:
        budget(words)
        return capsys.readouterr().out

    return run


def runs(count: int) -> PlanEvent:
    """So many runs of 20 steps, each scored once."""
    step = poisson_gaussian(sample_rate=0.1, noise_multiplier=1.5)
    return PlanEvent(training=repeat(step, 20 * count), validation=repeat(gaussian(noise_multiplier=8.0), count))


def charge(ledger: Ledger, count: int, event: PlanEvent, plan: str = "p", reason: str = "plan") -> None:
    """One charge for so many runs that do `event`."""
    trials = [f"{plan}{number}" for number in range(count)]
    charge_event(ledger, "digits", plan=plan, trials=trials, record={"reason": reason}, event=event)


def spend_outside(ledger: Ledger) -> None:
    charge_outside(ledger, "digits", Guarantee(epsilon=2.0, delta=1e-6), "a pilot study, in 2021")


def entries(ledger: Ledger) -> tuple[object, ...]:
    return tuple(entry for account in ledger.account_names() for entry in ledger.statement(account).entries)


def test_an_account_shows_each_charge_and_what_is_left(say: Say, ledger: Ledger) -> None:
    ledger.open_account("digits", BUDGET)
    charge(ledger, 8, runs(8))
    charge(ledger, 1, runs(1), reason="repeat", plan="q")
    spend_outside(ledger)
    table = say("dataset=digits")
    entry = ledger.statement("digits").charges[0]
    for words in ("8 runs", "1 run again", "a pilot study, in 2021", "outside", entry.at[:10], entry.who):
        assert words in table
    assert "2.000" in table
    assert "the epsilons of all sweeps may reach 24, their deltas 0.0001" in table
    assert "spent" not in table


@pytest.mark.parametrize("policy", [Addition(), FILTER], ids=["addition", "filter"])
def test_the_json_has_the_same_facts(say: Say, ledger: Ledger, policy: Policy) -> None:
    ledger.open_account("digits", BUDGET, policy)
    charge(ledger, 8, runs(8))
    spend_outside(ledger)
    (form,) = json.loads(say("show", "dataset=digits", "--json"))
    table = say("dataset=digits")
    statement = ledger.statement("digits")
    reserved = {name: float(amount) for name, amount in statement.balance.reserved.items()}
    assert {name: amount for name, amount in form["reserved"].items() if amount} == reserved
    for name, limit in policy.amount_limits(BUDGET).items():
        assert form["left"][name] == pytest.approx(float(limit) - reserved.get(name, 0.0))
        assert name in table
    assert form["sharing"] in table
    sweeps, number = form["fits"]["sweeps"], form["fits"]["number"]
    assert 1 < sweeps < number / 8
    assert f"Left: {sweeps} more sweeps like the last one (8 runs), or one sweep of {number} runs." in table
    assert [(one["for"], one["epsilon"], one["runs"]) for one in form["charges"]] == [
        ("8 runs", statement.charges[0].body["epsilon"], 8),
        ("a pilot study, in 2021", 2.0, 0),
    ]
    assert form["policy"]["name"] in ("addition", "Renyi filter of order 4")
    assert not form["closed"]


@pytest.mark.parametrize("policy", [Addition(), FILTER], ids=["addition", "filter"])
def test_as_many_runs_as_still_fit_are_admitted_as_one_plan_and_one_more_is_not(ledger: Ledger, policy: Policy) -> None:
    ledger.open_account("digits", BUDGET, policy)
    charge(ledger, 8, runs(8))
    found = further_runs_that_fit(ledger.statement("digits"))
    assert found is not None
    assert found.number > 8
    with pytest.raises(BudgetRefused):
        charge(ledger, found.number + 1, runs(found.number + 1), plan="more")
    charge(ledger, found.number, runs(found.number), plan="last")


def test_runs_of_unequal_price_are_counted_in_the_mixture_of_the_last_charge(ledger: Ledger) -> None:
    ledger.open_account("digits", BUDGET)
    both = PlanEvent(training=compose([gaussian(noise_multiplier=6.0), gaussian(noise_multiplier=12.0)]))
    charge(ledger, 2, both)
    found = further_runs_that_fit(ledger.statement("digits"))
    assert found is not None
    pairs, odd = divmod(found.number, 2)
    charge(ledger, found.number, PlanEvent(training=repeat(both.training, pairs + odd)), plan="last")
    assert remaining_amounts(ledger.statement("digits"))[0] < 0.5


def test_a_search_that_does_not_tell_is_counted_as_a_whole(say: Say, ledger: Ledger) -> None:
    ledger.open_account("digits", BUDGET)
    event = PlanEvent(training=best_of_tries(runs(1).training, NegativeBinomial(eta=1.0, gamma=0.2)))
    charge_event(ledger, "digits", plan="p", trials=["p"], delta=3e-5, event=event)
    assert "1 search" in (table := say())
    assert "Left: 2 more searches like the last one." in table
    charge_event(ledger, "digits", plan="q", trials=["q"], delta=3e-5, event=event)
    assert "Left: 1 more search like the last one." in say()


def test_a_closed_account_says_so_and_takes_nothing_more(say: Say, ledger: Ledger) -> None:
    ledger.open_account("digits", BUDGET)
    charge(ledger, 2, runs(2))
    assert "closed" not in say()
    shown = say("close", "dataset=digits")
    assert "closed" in shown
    assert "Left: no more runs" in shown
    (form,) = json.loads(say("--json"))
    assert form["closed"]
    assert set(form["left"].values()) == {0.0}
    with pytest.raises(BudgetRefused, match="closed"):
        charge(ledger, 1, runs(1), plan="more")


def test_an_account_is_opened_once_with_its_policy_for_ever(say: Say, ledger: Ledger) -> None:
    shown = say("open", "dataset=digits", *RENYI)
    assert "share epsilon 20 and one delta 9e-5" in shown
    statement = ledger.statement("digits")
    assert statement.balance.policy == FILTER
    assert statement.budget == BUDGET
    before = entries(ledger)
    with pytest.raises(BadInput, match="to be new"):
        say("open", "dataset=digits")
    assert entries(ledger) == before
    say("open", "dataset=mnist", "budget.epsilon=3", "budget.delta=1e-6")
    assert ledger.statement("mnist").budget == Guarantee(epsilon=3.0, delta=1e-6)
    assert ledger.statement("mnist").balance.policy == Addition()


def test_a_table_of_ones_own_is_opened_and_then_called_by_its_name(say: Say, ledger: Ledger) -> None:
    say("open", "dataset=table", "dataset.name=visits", "budget.epsilon=6", "budget.delta=1e-4")
    say("raise", "dataset=visits", "budget.epsilon=7")
    assert ledger.statement("visits").budget == Guarantee(epsilon=7.0, delta=1e-4), "what is left out stays"
    assert "visits" in say("dataset=table", "dataset.name=visits")


def test_what_was_spent_outside_is_recorded_also_where_it_exceeds_the_budget(
    say: Say, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.open_account("digits", BUDGET)
    say(*OUTSIDE)
    assert reserved_amounts(ledger.statement("digits")) == (2.0, 1e-6)
    budget(["charge", "dataset=digits", "--epsilon=30", "--delta=0", "--note", "somebody else"])
    told = capsys.readouterr()
    assert "More epsilon is reserved on digits now than its budget allows" in told.err
    assert reserved_amounts(ledger.statement("digits")) == (32.0, 1e-6)
    with pytest.raises(BudgetRefused):
        charge(ledger, 1, runs(1))
    assert "What is left pays" not in told.out, "there is no charge of this tool's own to compare with"


@pytest.mark.parametrize(
    "line",
    [
        "dance",
        "dataset=nowhere",
        "datset=digits",
        "open",
        "open dataset=cifar10 policy=renyi",
        "open dataset=cifar10 policy=renyi policy.order=1 policy.epsilon=2 policy.delta=1e-6",
        "open dataset=cifar10 policy=renyi policy.order=4 policy.epsilon=1e9 policy.delta=1e-6",
        "open dataset=cifar10 policy=dance",
        "open dataset=cifar10 budget.epsilon=-1",
        "open dataset=cifar10 budget.delta=2",
        "open dataset=table budget.epsilon=1 budget.delta=1e-6",
        "raise",
        "raise dataset=digits",
        "raise dataset=digits budget.epsilon=3",
        "raise dataset=digits budget.epsilon=much",
        "raise dataset=digits budget.epsilon=inf",
        "raise dataset=digits budget.delta=1",
        "raise dataset=mnist budget.epsilon=99",
        "raise dataset=digits budget.epsilon=30 policy=renyi",
        "close",
        "close digits",
        "close dataset=digits foo=1",
        "charge dataset=digits",
        "charge --epsilon 1 --delta 0 --note x",
        "charge dataset=digits --epsilon 1 --delta 0",
        "charge dataset=digits --epsilon 1 --delta 0 --note",
        "charge dataset=digits --epsilon one --delta 0 --note x",
        "charge dataset=digits --epsilon -1 --delta 0 --note x",
        "charge dataset=digits --epsilon nan --delta 0 --note x",
        "charge dataset=digits --epsilon inf --delta 0 --note x",
        "charge dataset=digits --epsilon 1 --delta 1 --note x",
        "charge dataset=digits --epsilon 1 --delta 0 --note x --unit patient",
        "charge dataset=mnist --epsilon 1 --delta 0 --note x",
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_records_nothing(say: Say, ledger: Ledger, line: str) -> None:
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    ledger.open_account("digits", BUDGET)
    before = entries(ledger)
    with pytest.raises((BadInput, HydraException, OmegaConfBaseException)):
        say(*line.split())
    assert entries(ledger) == before


def test_the_sentence_the_code_and_the_help_reach_the_shell(
    environment: Mapping[str, str], ledger: Ledger, tmp_path: Path
) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = Run(("budget", *words), tmp_path, environment).wait()
        return subprocess.CompletedProcess(words, done.code, done.out, done.err)

    done = run("charge", "dataset=digits", "--epsilon", "1", "--delta", "0", "--note", "x")
    assert done.returncode == 2
    assert "Expected account=digits to be open" in done.stderr
    assert "Traceback" not in done.stderr
    helped = run("--help").stdout
    assert all(f"`dpsweep budget {verb}" in helped or f"[{verb}]" in helped for verb in VERBS)
    assert not Path(environment["DPSWEEP_LEDGER"]).exists()


def test_a_data_set_of_ones_own_is_found_by_config_dir(say: Say, ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "mine" / "dataset").mkdir(parents=True)
    digits = (CONF / "dataset" / "digits.yaml").read_text()
    (tmp_path / "mine" / "dataset" / "ward.yaml").write_text(re.sub("(?m)^  name: .*", "  name: patients", digits))
    folder = ("--config-dir", str(tmp_path / "mine"))
    say("open", *folder, "dataset=ward", "budget.epsilon=3", "budget.delta=1e-5")
    say("raise", "dataset=ward", "budget.epsilon=4", *folder)
    assert ledger.statement("patients").budget.epsilon == 4
    with pytest.raises(BadInput, match="to be a folder"):
        say("show", "--config-dir", str(tmp_path / "no"), "dataset=ward")


def test_a_sweep_does_not_choose_a_policy(program: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    for line in ("policy=renyi", "+policy=renyi"):
        done = program("dataset=digits", line)
        assert done.returncode == 2
        assert "policy" in done.stderr


@pytest.mark.parametrize("amount", ["1e-320", "5e-324", "1e-400", "2e-308"])
@pytest.mark.parametrize("name", ["--epsilon", "--delta"])
def test_an_amount_that_a_float_cannot_hold_is_refused(say: Say, ledger: Ledger, name: str, amount: str) -> None:
    ledger.open_account("digits", BUDGET)
    words = {"--epsilon": "1", "--delta": "0", "--note": "x"} | {name: amount}
    with pytest.raises(BadInput, match="the smallest amount"):
        say("charge", "dataset=digits", *(word for pair in words.items() for word in pair))
    assert verify_entries(ledger.chain) == 1


@pytest.mark.parametrize("place", ["/", ":memory:", "file:ledger.sqlite?mode=memory", "/dev/null", "."])
def test_what_is_no_file_is_no_ledger(fresh_program: Program, environment: dict[str, str], place: str) -> None:
    environment["DPSWEEP_LEDGER"] = place
    done = fresh_program("budget", module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 2, done.stderr
    assert f"Expected DPSWEEP_LEDGER={place} to be " in done.stderr
    assert "Traceback" not in done.stderr


def folder_with_receipt(ledger: Ledger, root: Path) -> Path:
    """A sweep folder in which one attempt has begun."""
    (receipt,) = start_attempts(ledger, "digits", plan="p", trials=["p0"])
    receipt.write(root / "trials" / "p0")
    return root


def test_a_tail_that_was_cut_off_is_found_by_a_receipt(
    say: Say, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a machine that has never seen the ledger."""
    ledger.open_account("digits", BUDGET)
    shutil.copy(ledger.path, tmp_path / "earlier.sqlite")
    charge(ledger, 1, runs(1))
    root = folder_with_receipt(ledger, tmp_path / "sweep")
    assert "3 entries, the chain is whole" in say("verify")
    for left_over in tmp_path.glob("ledger.sqlite*"):
        left_over.unlink()
    shutil.copy(tmp_path / "earlier.sqlite", ledger.path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert "1 entries, the chain is whole" in say("verify"), "by itself, the earlier ledger is whole"
    with pytest.raises(LedgerDamaged, match="it lost lines"):
        say("verify", str(root))
