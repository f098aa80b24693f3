"""Settings that nobody means are refused as typos in one sentence, before anything is priced or charged."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.notation import text_with_all_digits
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.planning.plan_settings import LIMITS, Point, require_settings_within_limits

Compose = Callable[[Sequence[str]], PricedPlan]
Program = Callable[..., subprocess.CompletedProcess[str]]

LINE = (
    *("dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=3"),
    *("accountant=rdp", "accountant.witnesses=[]"),
)
NOISE = "privacy.noise_multiplier=4"


@pytest.mark.parametrize(
    "override",
    [
        "trainer.clip_norm=1e30",
        "trainer.clip_norm=1e-45",
        "trainer.clip_norm=1,1e30",
        "trainer.lr=1e30",
        "trainer.lr=1e-30",
        "privacy.noise_multiplier=1e9",
        "privacy.noise_multiplier=1e-9",
        "score.noise_std=1e30",
        "privacy.epsilon=1e9",
        "privacy.epsilon=1e-9",
        "privacy.delta=1e-45",
        "budget.epsilon=1e30",
        "budget.delta=1e-45",
    ],
)
def test_beyond_its_limits_a_number_is_a_typo(compose_priced: Compose, override: str) -> None:
    key = override.partition("=")[0]
    least, most = map(text_with_all_digits, LIMITS[key])
    with pytest.raises(BadInput) as refusal:
        compose_priced([one for one in LINE if not one.startswith(f"{key}=")] + [override])
    sentence = str(refusal.value)
    assert re.match(
        rf"Expected {re.escape(key)}=[\d.e-]+ in {least} to {most}: anything else is taken for a typo", sentence
    )
    assert sentence.endswith(".")


def test_a_number_of_a_part_has_the_limits_of_the_whole() -> None:
    trainer = {"kind": "method", "lr": 1.0, "transform": {"kind": "clip", "clip_norm": 1e30}}
    with pytest.raises(BadInput, match=r"Expected trainer\.transform\.clip_norm=1e30 in 1e-6 to 1000000: "):
        require_settings_within_limits([Point(method="mine", axes={}, config={"trainer": trainer})])
    require_settings_within_limits(
        [Point(method="mine", axes={}, config={"trainer": trainer | {"transform": {"clip_norm": 1e6}}})]
    )


def test_at_its_limits_a_number_is_taken_at_its_word(compose_priced: Compose) -> None:
    priced = compose_priced([*LINE[:3], "trainer.clip_norm=1e-6,1e6", "steps=3", *LINE[5:], NOISE])
    assert [trial.config["trainer"]["clip_norm"] for trial in priced.plan.trials] == [1e-6, 1e6]


def test_the_program_says_so_with_exit_code_2_and_opens_no_account(program: Program, ledger: Ledger) -> None:
    done = program(*LINE, "trainer.clip_norm=1e30")
    assert done.returncode == 2
    assert "Expected trainer.clip_norm=1e30 in 1e-6 to 1000000: anything else is taken for a typo." in done.stderr
    assert "Traceback" not in done.stderr
    assert ledger.account_names() == ()


@pytest.mark.parametrize("line", ["open dataset=digits budget.epsilon=1e30", "open dataset=digits budget.delta=1e-45"])
def test_a_budget_has_limits_too(program: Program, ledger: Ledger, line: str) -> None:
    done = program("budget", *line.split(), module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 2
    assert "taken for a typo" in done.stderr
    assert ledger.account_names() == ()


def test_what_was_spent_elsewhere_is_believed_up_to_a_limit(program: Program, ledger: Ledger) -> None:
    assert program("budget", "open", "dataset=digits", module="dpsweep.sweeper.commands.cli").returncode == 0
    words = ("budget", "charge", "dataset=digits", "--delta", "0", "--note", "a pilot")
    done = program(*words, "--epsilon", "1e30", module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 2
    assert "Expected --epsilon=1e30 <= 1000000000000: anything above is taken for a typo." in done.stderr
    assert ledger.statement("digits").charges == ()


def test_the_documentation_lists_the_limits() -> None:
    text = (Path(__file__).parents[3] / "docs" / "ledger.md").read_text()
    for key, (least, most) in LIMITS.items():
        assert f"| `{key}` | {text_with_all_digits(least)} | {text_with_all_digits(most)} |" in text
