"""Before the charge: one call into accounting for the price and one for what is shown; one composition by Hydra."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra

from dpsweep.sweeper.commands import hydra_app
from tests.randomized import SURE
from tests.sweeper.descents import until_the_charge

pytestmark = pytest.mark.randomized(draws="the tries of a search that never begins", bound=SURE, false_alarm=0.0)

LIGHT = ("dataset=digits", "trainer=dpnsgd", "trainer.regularizer=0.1,1", "trainer.lr=2", "steps=3", "accountant=rdp")
PRICE = "pricing.search_price.solve_and_price_search"
SHOW = "pricing.outlook.compare_plan_with_account"
DRAW = "selection.interface.SelectionRule.draw"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A ledger, a key and a folder of the test's own, for a program that runs in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dpsweep"])
    monkeypatch.delenv("DPSWEEP_DATA", raising=False)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    GlobalHydra.instance().clear()
    yield
    GlobalHydra.instance().clear()


@pytest.mark.parametrize(
    ("tuning", "descents"),
    [
        ("composition", [PRICE, SHOW]),
        ("auto", [PRICE, SHOW]),
        ("private_selection", [PRICE, SHOW, DRAW]),
    ],
)
def test_a_sweep_goes_down_into_accounting_at_most_three_times_before_its_charge(
    tuning: str, descents: list[str]
) -> None:
    calls = until_the_charge(lambda: hydra_app.main([*LIGHT, "accountant.witnesses=[]", f"tuning={tuning}"]))
    assert [[name.removeprefix("dpsweep.accounting.") for name in names] for names in calls.descents] == [
        [name] for name in descents
    ]
    assert len(descents) <= 3


RULES = {
    "": 1,  # all rules of conf/ are read, not composed
    "_target_: dpsweep.accounting.selection.rules.Composition": 1,
    "defaults: [private_selection, _self_]\nmean: 7": 2,
    "# @package tuning\n_target_: dpsweep.accounting.selection.rules.Composition": 2,
}


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=[pytest.mark.long] * (number in (1, 3))) for number, rule in enumerate(RULES)]
)
def test_hydra_composes_once_and_once_more_for_rules_that_need_it(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = []
    original = ConfigLoaderImpl._load_configuration_impl
    monkeypatch.setattr(
        ConfigLoaderImpl, "_load_configuration_impl", lambda *words, **more: calls.append(1) or original(*words, **more)
    )
    (tmp_path / "own" / "tuning").mkdir(parents=True)
    if rule:
        (tmp_path / "own" / "tuning" / "mine.yaml").write_text(rule)
    line = [
        *LIGHT,
        "accountant.witnesses=[]",
        "hydra.sweeper.verb=plan",
        "hydra.sweeper.rules=true",
        "--config-dir",
        str(tmp_path / "own"),
    ]
    hydra_app.main(line)
    assert len(calls) == RULES[rule]
    assert ("mine" in capfd.readouterr().out.split()) == bool(rule)
