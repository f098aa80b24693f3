"""A plan that was run in another folder is shown, and not charged again unless the command says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpsweep.accounting.ledger.book import Ended
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import PrivateStore
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.sweep_folder import LastFolder, SweepFolder
from dpsweep.sweeper.coordinator.stored_plan import plan_run_elsewhere
from tests.conftest import Program
from tests.forked_programs import CLI
from tests.randomized import TRAINS

WORDS = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=3", "page=false")
PRICE = ("privacy.noise_multiplier=3", "score.noise_std=30", "accountant=rdp")
HIDDEN = ("--anyway", "tuning=private_selection", "tuning.mean=2", "privacy.noise_multiplier=8", "score.noise_std=300")


@TRAINS
@pytest.mark.parametrize("price", [PRICE, HIDDEN], ids=["every point", "secret draw"])
def test_a_plan_that_was_finished_elsewhere_is_shown_and_repeated_only_when_asked(
    program: Program, environment: dict[str, str], tmp_path: Path, price: tuple[str, ...]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"

    def lines() -> int:
        return len(Ledger(environment["DPSWEEP_LEDGER"]).statement("digits").entries)

    done = program(*WORDS, *price, f"hydra.sweep.dir={first}")
    assert done.returncode == 0, done.stderr
    charged = lines()
    planned = program("plan", *WORDS, *price, f"hydra.sweep.dir={second}", module=CLI)
    assert planned.returncode == 0, planned.stderr
    assert f"It lies in {first}: dpsweep report {first}" in planned.stdout
    shown = program(*WORDS, *price, f"hydra.sweep.dir={second}")
    assert shown.returncode == 0, shown.stderr
    assert lines() == charged, "not charged again, also after a plan there"
    assert not (second / "trials").exists()
    for words in ("was finished by ", "(self-declared) on 20", f"It lies in {first}", "Nothing was run or charged."):
        assert words in shown.stdout
    assert shown.stdout.strip().splitlines()[-1] == str(first)
    again = program(*WORDS, *price, f"hydra.sweep.dir={second}", "--again")
    assert again.returncode == 0, again.stderr
    assert [entry.body["reason"] for entry in Ledger(environment["DPSWEEP_LEDGER"]).statement("digits").charges] == [
        "plan",
        "repeat",
    ]
    assert second.exists()


def test_who_finished_is_said_of_this_plan_and_of_no_other(
    compose_priced: Callable[[Sequence[str]], PricedPlan], tmp_path: Path
) -> None:
    priced = compose_priced([*WORDS[:-1], *PRICE])
    store = PrivateStore(root=tmp_path / "private")
    first, second = (SweepFolder(root=tmp_path / name, store=store) for name in ("first", "second"))
    first.create_folder()
    first.plan_path.write_text("{}")
    LastFolder(folder=str(first.root), finished=True).write(store)

    def settled(plan: str, writer: str) -> SimpleNamespace:
        return SimpleNamespace(kind=Ended.kind, plan=plan, who=writer, at="2026-11-27")

    def sentence(*entries: SimpleNamespace, unsettled: tuple[str, ...] = ()) -> str:
        attempts = SimpleNamespace(open_sessions=lambda: unsettled, started={"trial": 1})
        statement: Any = SimpleNamespace(entries=entries, attempts_of_plan=lambda plan: attempts)
        elsewhere = plan_run_elsewhere(priced, second, statement)
        return "" if elsewhere is None else elsewhere.sentence

    assert "was finished by alice (self-declared) on" in sentence(
        settled(priced.plan.id, "alice"), settled("other", "bob")
    )
    assert sentence(settled("other", "bob")) == "", "this ledger knows of no end of this plan"
    assert "was left unfinished by alice (self-declared) on" in sentence(
        settled(priced.plan.id, "alice"), unsettled=("trial",)
    )
    LastFolder(folder=str(first.root), finished=False).write(store)
    assert (
        f"It lies in {first.root}: dpsweep resume {first.root}. Nothing was run or charged. --again repeats it in "
        in (sentence(settled(priced.plan.id, "alice")))
    )
    first.plan_path.unlink()
    assert sentence(settled(priced.plan.id, "alice")) == "", "its folder is gone"
