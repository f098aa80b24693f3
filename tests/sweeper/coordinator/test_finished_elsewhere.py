"""A plan that was finished in another folder is shown, and not charged again unless the command says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from tests.conftest import Program
from tests.randomized import TRAINS

WORDS = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=3", "page=false")
PRICE = ("privacy.noise_multiplier=3", "score.noise_std=30", "accountant=rdp")
HIDDEN = ("tuning=private_selection", "tuning.mean=2", "privacy.noise_multiplier=8", "score.noise_std=300")


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
    shown = program(*WORDS, *price, f"hydra.sweep.dir={second}")
    assert shown.returncode == 0, shown.stderr
    assert lines() == charged
    assert not second.exists()
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
