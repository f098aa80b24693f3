"""The plan says how well a score will be known, and the sweep then tells it about so well."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.sweeper.coordinator.score_width import score_width_text
from dpsweep.sweeper.planning.plan_builder import PricedPlan
from dpsweep.sweeper.trial.spec import declaration_from_config

Program = Callable[..., subprocess.CompletedProcess[str]]
Compose = Callable[[Sequence[str]], PricedPlan]

TWO = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1")


def widths(priced: PricedPlan) -> list[float]:
    text = score_width_text(priced, None)
    assert text is not None
    return [float(number) for number in re.findall(r"(?:winner|any other run) ±(\d+\.?\d*)", text)]


def test_the_winner_of_more_points_is_known_less_well(compose_priced: Compose) -> None:
    few, many = (
        compose_priced((*TWO[:2], f"trainer.lr={rates}", TWO[3])) for rates in ("1,2", "1,2,3,4,5,6,7,8,9,10,11,12")
    )
    (winner, run), (rarer, other) = widths(few), widths(many)
    assert run < winner < rarer
    assert other < rarer


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("tuning=composition",), " points, any other run ±"),
        (("tuning=private_selection",), " points."),
        (("tuning=disjoint",), " points"),
        (("tuning=noisy_max",), None),
        (
            ("tuning=composition", "score.fraction=0.03"),
            "More scored records, fewer points or another metric would tell more.",
        ),
    ],
)
def test_each_rule_says_what_it_tells(compose_priced: Compose, words: Sequence[str], expected: str | None) -> None:
    text = score_width_text(compose_priced((*TWO, *words)), None)
    assert (text is None) is (expected is None)
    if text is not None and expected is not None:
        assert expected in text
        assert ("any other run " in text) is (words[0] == "tuning=composition")


@pytest.mark.parametrize("sealed", [(), ("budget.sealed=auto",)])
def test_a_metric_by_classes_says_that_it_takes_them_to_be_of_equal_size(
    compose_priced: Compose, sealed: Sequence[str]
) -> None:
    accuracy, balanced = (
        score_width_text(compose_priced((*TWO, f"score.metric={metric}", *sealed)), None) or ""
        for metric in ("accuracy", "balanced_accuracy")
    )
    assert accuracy.startswith("Expected error bars at a score of 90 %: ")
    assert balanced.startswith("Expected error bars at a score of 90 %, if classes are of equal size: ")


def test_a_second_sweep_on_an_account_has_no_interval_for_its_winner(program: Program) -> None:
    cli = {"module": "dpsweep.sweeper.commands.cli"}
    words = (*TWO, "steps=2", "privacy.epsilon=1", "seed=1")
    assert program("sweep", *words, "page=false", **cli).returncode == 0
    text = re.sub(r"\s*│\n│\s*│", " ", program("plan", *words, "trainer.lr=3,4", **cli).stdout)
    assert "The winner will have no error bar: an earlier sweep used the same held-out records" in text


@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy"])
def test_a_result_holds_the_interval_of_its_released_counts(
    program: Program, compose_priced: Compose, tmp_path: Path, metric: str
) -> None:
    """At the level of one of two runs, by the noise that was charged."""
    words = (*TWO, "steps=2", "privacy.epsilon=1", "seed=1", f"score.metric={metric}")
    assert program("sweep", *words, "page=false", module="dpsweep.sweeper.commands.cli").returncode == 0
    results = [TrialResult.read(path.parent) for path in tmp_path.rglob("result.json")]
    assert len(results) == 2
    for result in results:
        assert result is not None
        assert result.score is not None
        declared = declaration_from_config(compose_priced(words).plan.trials[0].config)
        (low, high), *_ = declared.score.intervals_at_level(result.released_counts, 0.05 / 2, whole_units=True).values()
        assert result.score["told"] == {"low": low, "high": high}
        assert low <= result.score["value"] <= high
        if metric == "accuracy":
            assert low < result.score["low"] < result.score["high"] < high


TABLE = (
    *("dataset=table", "dataset.name=visits", "dataset.file=visits.csv", "dataset.records=1800", "dataset.shape=[1]"),
    *("dataset.classes=2", "dataset.label=ill", "dataset.labels=[no,yes]", "dataset.bounds={age:[18,90]}"),
    *("privacy.delta=1e-5", "budget.epsilon=24", "budget.delta=1e-4", "sampler.batch_size=200", *TWO[1:]),
)


def test_units_of_several_records_are_promised_the_interval_of_fractions(compose_priced: Compose) -> None:
    """A patient adds fractions to the counts, so the plan must not promise what only whole units give."""
    units = ("dataset.unit=patient", "dataset.unit_column=who", "dataset.units=1800", "dataset.contribution_cap=1")
    plain, patients = compose_priced(TABLE), compose_priced((*TABLE, *units))
    assert widths(patients)[0] > 1.1 * widths(plain)[0]


@pytest.mark.parametrize(
    ("words", "units", "points"),
    [((), 180, 4.6), (("score.metric=balanced_accuracy",), 180, 12.9), (("tuning=noisy_max",), 180, 4.6)],
)
def test_a_card_says_how_well_it_will_tell_the_winner(
    compose_priced: Callable[..., PricedPlan], words: Sequence[str], units: int, points: float
) -> None:
    words = ("dataset=digits", "budget.sealed={share:0.2,parts:2}", "accountant=rdp", "accountant.witnesses=[]", *words)
    text = score_width_text(compose_priced(words), None)
    assert text is not None
    within = re.match(
        r"Expected error bars at a score of 90 %.*: winner ±([\d.]+) points, on a sealed part of about (\d+) records",
        text,
    )
    assert within is not None
    assert int(within[2]) == units
    assert float(within[1]) == pytest.approx(points, rel=0.2)


WEAK = (
    *TABLE,
    *("score.metric=auroc", "dataset.records=300", "sampler.batch_size=30", "privacy.epsilon=0.5"),
    *("trainer.lr=0.1,0.2,0.4,0.8,1,2,3,4,5,6", "plan.class_shares=[.95,.05]", "steps=2", "page=false", "seed=1"),
)
"""A table of a few hundred patients, of whom one in twenty has died."""


def test_the_plan_says_what_an_area_will_be_worth(compose_priced: Compose) -> None:
    strong = compose_priced((*TABLE, "score.metric=auroc", "dataset.records=200000"))
    equal = score_width_text(strong, None) or ""
    declared = score_width_text(strong, None, (0.95, 0.05)) or ""
    assert "if classes are of equal size: winner ±" in equal
    assert "if classes are of the declared sizes: winner ±" in declared
    (even, _), (rare, _) = (
        [float(number) for number in re.findall(r"(?:winner|any other run) ±(\d+\.\d)", text)]
        for text in (equal, declared)
    )
    assert even < rare < 50


def test_a_search_whose_every_interval_is_the_whole_scale_is_refused_before_the_charge(
    program: Program, tmp_path: Path
) -> None:
    (tmp_path / "visits.csv").write_text("age,ill\n" + "".join(f"{20 + row % 60},no\n" for row in range(300)))
    cli = {"module": "dpsweep.sweeper.commands.cli"}
    planned = program("plan", *WEAK, **cli)
    assert planned.returncode == 0, planned.stderr
    assert "Every interval is as wide as the scale" in " ".join(planned.stdout.split())
    refused = program("sweep", *WEAK, **cli)
    assert refused.returncode == 2
    (sentence,) = (line for line in refused.stderr.splitlines() if "as wide as the scale" in line)
    assert all(word in sentence for word in ("as wide as the scale", "More scored records", "--anyway"))
    assert not list(tmp_path.rglob("result.json"))
    done = program("sweep", "--anyway", *WEAK, **cli)
    assert done.returncode == 0, done.stderr
    plans = [Plan.read(path) for path in tmp_path.rglob("plan.json")]
    assert len({plan.id for plan in plans}) == 1, "--anyway is no part of a plan's identity"
    assert any("--anyway" in note for plan in plans for note in plan.notes)
