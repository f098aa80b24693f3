"""Sweeps on data declared public: said to protect nobody wherever they are shown, and refused where anybody is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, BudgetRefused
from dpsweep.accounting.events.build import are_same_events, non_private, repeat
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.reports.pages.comparison import write_comparison
from dpsweep.reports.pages.model_export import write_release_and_export
from dpsweep.sweeper.commands import account_statement as passbook
from dpsweep.sweeper.searches.admission import open_account_or_check_budget
from tests.randomized import TRAINS
from tests.reports.disclosure.forms import FORMATS

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]
Compose = Callable[[Sequence[str]], PricedPlan]

PUBLIC = ("dataset=digits", "dataset.public=true", "score=training", "steps=3")
NOBODY = "protects nobody"


@pytest.mark.usefixtures("pages")
def test_they_are_charged_run_and_shown_as_what_they_are(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = program(*PUBLIC, "trainer=sgd", "trainer.lr=1,2", "score.every=2")
    assert done.returncode == 0, done.stderr
    assert "PROTECTS NOBODY: you declared these data public" in done.stdout
    folder = Path(done.stdout.splitlines()[-1]).parents[1]
    for trial in (folder / "trials").iterdir():
        result = TrialResult.read(trial)
        assert result is not None
        assert result.score is not None, result.error
        assert result.steps == 3
        assert [point["step"] for point in result.curator["curve"]] == [2, 3]
        assert result.curator["curve"][-1]["training_accuracy"] == pytest.approx(result.score["value"])
    ledger = Ledger(tmp_path / "ledger.sqlite")
    statement = ledger.statement("digits")
    assert statement.budget.promises_nothing
    assert [entry.kind for entry in statement.entries][:3] == ["open", "data", "charge"], "before anything starts"
    write_release_and_export(folder, ledger, tuple(FORMATS.values()))
    monkeypatch.setenv("DPSWEEP_LEDGER", str(ledger.path))
    beside = write_comparison([folder], tmp_path / "beside")
    assert "digits was declared public: its records are not protected." in beside.read_text()
    forms = [f"release/{one.file}" for one in FORMATS.values()]
    for page in ("curator/report.html", "release/report.html", "release/statement.html", "export/README.md", *forms):
        text = (folder / page).read_text()
        assert NOBODY in text
        assert "price below covers" not in text
        assert not any(word in text for word in ("dp:epsilon", "privacy_parameters", "differential_privacy:")), page
    assert "differential-privacy" not in (folder / "export" / "README.md").read_text()
    assert not [*folder.rglob("price.json"), *folder.rglob("price_check.py")], "there is no price to recompute"
    for form in folder.rglob("*.json"):
        json.loads(form.read_text(), parse_constant=lambda word, form=form: pytest.fail(f"{word} in {form}"))
    assert passbook.to_json(statement)["left"] == {"epsilon": "infinity", "delta": "infinity"}
    passbook.print_account(statement)


@pytest.mark.parametrize("order", [1, -1], ids=["private first", "public first"])
def test_no_account_is_both(compose_priced: Compose, ledger: Ledger, order: int) -> None:
    plans = [compose_priced(["dataset=digits"]), compose_priced([*PUBLIC, "trainer=sgd"])]
    first, second = plans[::order]
    open_account_or_check_budget(first, ledger)
    with pytest.raises(BudgetRefused) as refused:
        open_account_or_check_budget(second, ledger)
    assert refused.value.exit_code == 3
    assert "public" in str(refused.value)
    assert not ledger.statement("digits").charges


@pytest.mark.parametrize("trainer", ["sgd", "adam", "clipped_sgd", "normalized_sgd"])
def test_every_access_is_one_that_protects_nobody(compose_priced: Compose, trainer: str) -> None:
    plan = compose_priced([*PUBLIC, f"trainer={trainer}"]).plan
    assert {trial.config["privacy"]["noise_multiplier"] for trial in plan.trials} == {0.0}
    assert all(are_same_events(trial.event.training, repeat(non_private(), 3)) for trial in plan.trials)
    assert plan.has_public_data


@pytest.mark.parametrize("noise", [0, 1.5])
def test_private_methods_may_be_run_with_any_noise_that_is_given(compose_priced: Compose, noise: float) -> None:
    plan = compose_priced([*PUBLIC, "trainer=dpsgd", f"privacy.noise_multiplier={noise}"]).plan
    assert {trial.config["privacy"]["noise_multiplier"] for trial in plan.trials} == {noise}
    assert all(are_same_events(trial.event.training, repeat(non_private(), 3)) for trial in plan.trials), (
        "still no promise"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["dataset=digits", "trainer=sgd"], r"Expected dataset\.public=true with SGD, which adds no noise"),
        (["dataset=mnist", "trainer=clipped_sgd", "score=public"], "Expected dataset.public=true with clipped SGD"),
        (["dataset=digits", "privacy.noise_multiplier=0"], r"Expected privacy\.noise_multiplier=0 > 0: without noise"),
        ([*PUBLIC, "trainer=sgd", "score=private"], "Expected score=public or score=training with dataset.public"),
        (["dataset=digits", "score=training"], r"Expected dataset\.public=true with score=training"),
        (
            [*PUBLIC, "trainer=sgd", "privacy.noise_multiplier=1"],
            r"noise_multiplier=1 to be left out: SGD adds none",
        ),
        ([*PUBLIC, "trainer=dpsgd"], r"Expected privacy\.noise_multiplier to be given with DP-SGD"),
        ([*PUBLIC, "trainer=sgd", "privacy.epsilon=1"], r"Expected privacy\.epsilon to be left out"),
        ([*PUBLIC, "trainer=sgd", "budget.epsilon=1"], r"Expected budget\.epsilon to be left out"),
        ([*PUBLIC, "trainer=sgd", "tuning=private_selection"], "Expected tuning=private_selection to be composition"),
        ([*PUBLIC, "trainer=sgd", "tuning=auto"], "Expected tuning=auto to be composition"),
        ([*PUBLIC, "trainer=sgd", "solve=steps"], "Expected solve=steps to be noise"),
        (["dataset=digits", "dataset.public=maybe"], r"Expected dataset\.public='maybe' to be true or false"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_one_sentence(compose_priced: Compose, line: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        compose_priced(line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["dataset=digits", "score.every=5"], r"Expected score\.every=5 to be null with score=private"),
        (["dataset=mnist", "score=public", "score.every=0"], r"Expected score\.every=0 >= 1"),
        (
            ["dataset=mnist", "score=public", "score.every=5", "tuning=private_selection"],
            r"Expected score\.every=5 to be null under private_selection",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_curves_that_would_cost_or_tell_are_one_sentence(compose_priced: Compose, line: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        compose_priced(line)
