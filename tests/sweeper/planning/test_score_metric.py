"""`score.metric=`: from the command line to the plan, the price, the page and what leaves, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import NUMBERS_OF_COUNT, mechanisms_with_counts, number_of_rounded_numbers
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from tests.randomized import SEARCHES, TRAINS
from tests.studies import study_in
from tests.sweeper.digits_sweeps import folder_of
from tests.sweeper.trial.test_units import PATIENTS, TABLE, write_visits

pytestmark = TRAINS

Compose = Callable[[Sequence[str]], PricedPlan]
Program = Callable[..., subprocess.CompletedProcess[str]]

DIGITS = (
    *("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "steps=5", "privacy.epsilon=2"),
    "compute.threads=1",
)


def price(plan: Plan) -> tuple[float, bool]:
    return plan.trials[0].config["score"]["noise_std"], plan.event.validation is not None


@pytest.mark.parametrize("metric", ["sensitivity", "balanced_accuracy", "f1", "auroc", "specificity"])
def test_a_metric_is_another_plan_at_the_same_price(compose_priced: Compose, metric: str) -> None:
    plain, other = compose_priced(TABLE), compose_priced([*TABLE, f"score.metric={metric}"])
    assert other.plan.id != plain.plan.id
    assert other.quote.epsilon == pytest.approx(plain.quote.epsilon, rel=1e-8), "more counts are rounded"
    validation = [one.plan.trials[0].event.validation for one in (plain, other)]
    assert validation[0] is not None
    assert validation[1] is not None
    assert mechanisms_with_counts(validation[0]) == mechanisms_with_counts(validation[1])
    assert other.plan.trials[0].config["score"]["metric"] == metric


@pytest.mark.parametrize(("metric", "counts"), [("accuracy", 2), ("balanced_accuracy", 20)])
def test_the_rounding_of_every_noisy_count_is_in_the_price(compose_priced: Compose, metric: str, counts: int) -> None:
    """Of the scores, and of the card of a sealed part."""
    plan = compose_priced([*DIGITS, f"score.metric={metric}", "budget.sealed={share:0.2,parts:2}"]).plan
    scores, card = plan.trials[0].event.validation, plan.event.sealed
    assert scores is not None
    assert number_of_rounded_numbers(scores) == counts * NUMBERS_OF_COUNT
    assert plan.card is not None
    assert card is not None
    assert number_of_rounded_numbers(card) == plan.card.counts * NUMBERS_OF_COUNT > 0


def test_under_replacement_too(compose_priced: Compose) -> None:
    line = [*TABLE, "privacy.adjacency=replace_one", "sampler=shuffle", "sampler.batch_size=20", "steps=13"]
    plain, other = compose_priced(line), compose_priced([*line, "score.metric=auroc"])
    assert (price(other.plan), other.quote.epsilon) == (price(plain.plan), plain.quote.epsilon)


def test_what_is_said_as_it_is_anyway_leaves_no_trace(compose_priced: Compose) -> None:
    same_words = ["score.metric=accuracy", "score.positive=1", "score.bins=20"]
    plain, other = compose_priced(TABLE), compose_priced([*TABLE, *same_words])
    assert other.plan.id == plain.plan.id
    assert [trial.id for trial in other.plan.trials] == [trial.id for trial in plain.plan.trials]
    assert plain.plan.trials[0].config["score"].keys() == {"kind", "fraction", "noise_std"}


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["score.metric=acuracy"], "Expected score.metric=acuracy to be one of accuracy, auroc, balanced_accuracy"),
        (["score.metric=null"], "Expected score.metric=None to be one of accuracy"),
        (["score.metric=[f1]"], "to be one of accuracy"),
        (["score.metric=sensitivity", "score.positive=2"], "Expected score.positive=2 to be 0 or 1"),
        (["score.metric=auroc", "score.bins=1"], "Expected score.bins=1 >= 2."),
        (["score.metric=f1", "score.bins=5"], "Expected score.bins=5 to be left out with score.metric=f1."),
        (["score.positive=0"], "Expected score.positive=0 to be left out with score.metric=accuracy."),
        (["score.metric=auroc,f1"], "Expected score.metric to have one value"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(compose_priced: Compose, overrides: list[str], sentence: str) -> None:
    with pytest.raises(BadInput) as refusal:
        compose_priced([*TABLE, *overrides])
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_number_has_no_classes_to_confuse(compose_priced: Compose) -> None:
    with pytest.raises(BadInput, match=r"Expected score\.metric=f1 to be accuracy where the label is a number\."):
        compose_priced(["dataset=regression", "score.metric=f1"])


def test_a_metric_that_the_data_do_not_have_costs_nothing(program: Program, ledger: Ledger) -> None:
    done = program(*DIGITS, "score.metric=sensitivity")
    assert done.returncode == 2
    assert "Expected dataset.classes=10 == 2 with score.metric=sensitivity" in done.stderr
    assert ledger.account_names() == ()


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_balanced_accuracy_from_the_command_to_the_card(program: Program, ledger: Ledger) -> None:
    done = program(*DIGITS, "score.metric=balanced_accuracy")
    assert done.returncode == 0, done.stderr
    assert "balanced accuracy, noisy counts on held-out private records" in " ".join(done.stdout.split())
    folder = folder_of(done)
    assert "2 of 2 results" in verify_sweep_folder_and_describe(folder, ledger)
    scores = {
        trial.id: json.loads((folder / "trials" / trial.id / "result.json").read_text())["score"]
        for trial in Plan.read(folder / "plan.json").trials
    }
    best = max(scores, key=lambda trial: scores[trial]["value"])

    page = (folder / "curator" / "report.html").read_text()
    assert "Best by noisy balanced accuracy" in page
    assert "Noisy balanced accuracy in percent" in page
    assert "Scores, each the balanced accuracy, come from noisy confusion counts on held-out private records" in page
    assert "accuracies come from" not in page.lower()
    table = pd.read_csv(folder / "curator" / "trials.csv")
    assert {"balanced_accuracy", "balanced_accuracy_low", "balanced_accuracy_high"} <= set(table.columns)
    assert "accuracy" not in table.columns
    assert table.set_index("trial")["balanced_accuracy"].to_dict() == pytest.approx(
        {trial: score["value"] for trial, score in scores.items()}
    )
    form = json.loads((folder / "curator" / "report.json").read_text())
    assert form["measure"] == "noisy balanced accuracy"
    assert "balanced_accuracy" in form["trials"]["rows"][0]
    drawn = re.findall(r"<text[^>]*>([^<]*)<", (folder / "curator" / "heatmap.svg").read_text())
    assert "noisy balanced accuracy, %" in " ".join(drawn)
    study = study_in(folder / "study.log")
    assert study.user_attrs["objective"] == "balanced_accuracy"
    assert study.best_trial.user_attrs["trial"] == best

    exported = program("export", str(folder), module="dpsweep.sweeper.commands.cli")
    assert exported.returncode == 0, exported.stderr
    card = (folder / "export" / "README.md").read_text()
    assert re.search(r"Noisy balanced accuracy: \d+\.\d to \d+\.\d % ", card)
    assert f"{100 * scores[best]['value']:.1f} % is the score chosen among 2 runs." in card
    assert "balanced accuracy" in (folder / "release" / "report.html").read_text()

    again = program(*DIGITS, "score.metric=balanced_accuracy")
    assert again.returncode == 0, again.stderr
    assert len(ledger.statement("digits").charges) == 1


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_sensitivity_and_specificity_stand_beside_what_was_chosen(
    program: Program, ledger: Ledger, tmp_path: Path
) -> None:
    write_visits(tmp_path)
    done = program(*TABLE, "score.metric=f1", "score.noise_std=2", "privacy.epsilon=5")
    assert done.returncode == 0, done.stderr
    folder = folder_of(done)
    assert "2 of 2 results" in verify_sweep_folder_and_describe(folder, ledger)
    exported = program("export", str(folder), module="dpsweep.sweeper.commands.cli")
    assert exported.returncode == 0, exported.stderr
    page = (folder / "curator" / "report.html").read_text().replace("&#39;", "'")
    assert "Best by noisy F1 of 'yes'" in page
    card = (folder / "export" / "README.md").read_text()
    for text in (re.sub(r"<[^>]+>", " ", page), card.replace("S", "s")):
        for name in ("sensitivity", "specificity"):
            assert re.search(rf"{name} of 'yes':?\s+\d+\.\d to \d+\.\d %", text)


@pytest.mark.long
@pytest.mark.usefixtures("pages")
@SEARCHES
def test_a_search_that_hides_its_losers_by_patients_names_its_positive_class(
    program: Program, ledger: Ledger, tmp_path: Path
) -> None:
    write_visits(tmp_path)
    search = ("tuning=private_selection", "tuning.mean=3", "privacy.noise_multiplier=3")
    score = ("score.metric=auroc", "score.noise_std=3", "score.bins=5")
    done = program(*TABLE, *PATIENTS, *search, *score, "budget.epsilon=60", "--anyway")
    assert done.returncode == 0, done.stderr
    folder = folder_of(done)
    assert "paid" in verify_sweep_folder_and_describe(folder, ledger)
    page = (folder / "curator" / "report.html").read_text()
    assert "AUROC of 'yes'" in page.replace("&#39;", "'")
    assert "in 5 bins of the predicted log-odds" in page
