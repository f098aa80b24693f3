"""A plan is priced in one call into accounting and shown after another: no more before the ledger charges."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from dpsweep.sweeper.commands import hydra_app
from tests.randomized import SURE
from tests.sweeper.descents import until_the_charge

pytestmark = pytest.mark.randomized(draws="the tries of a search that never begins", bound=SURE, false_alarm=0.0)

LIGHT = ("dataset=digits", "trainer=dpnsgd", "trainer.regularizer=0.1,1", "trainer.lr=2", "steps=3", "accountant=rdp")
PRICE, SHOW = "pricing.search_price.price_search", "pricing.outlook.outlook"
DRAW = "selection.hidden_search.HiddenSearchRule.draw"


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
    [("composition", [PRICE, SHOW]), ("auto", [PRICE, SHOW]), ("private_selection", [PRICE, SHOW, DRAW])],
)
def test_a_sweep_goes_down_into_accounting_at_most_three_times_before_its_charge(
    tuning: str, descents: list[str]
) -> None:
    calls = until_the_charge(lambda: hydra_app.main([*LIGHT, "accountant.witnesses=[]", f"tuning={tuning}"]))
    assert [[name.removeprefix("dpsweep.accounting.") for name in names] for names in calls.descents] == [
        [name] for name in descents
    ]
    assert len(descents) <= 3
