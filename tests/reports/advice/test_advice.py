"""Advice on what an epsilon would buy: from the measurements that come with the program, and from nothing else."""

from __future__ import annotations

import runpy
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.reports.advice.advice import (
    FILE,
    Comparison,
    Evidence,
    MeasuredSet,
    Measurement,
    Way,
    advice_sentence_lines,
    advice_table_lines,
    nearest_comparison_for_plan,
)
from dpsweep.reports.pages.release import write_release
from tests.forked_programs import CLI
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]
Compose = Callable[[Sequence[str]], PricedPlan]
LIGHT = ("accountant=rdp", "accountant.witnesses=[]", "steps=3")
WAYS = {one.way.name: one.way for found in Evidence.read().comparisons for one in found.outcomes}
SMALL, LARGE = (
    MeasuredSet(name=name, records=n, inputs=9, classes=2, features=False, words="")
    for name, n in (("small", 1000), ("large", 60000))
)


def plan_of(classes: int = 2, epsilon: float = 3.0, **parts: object) -> Any:
    """What advice reads of a plan."""
    trial = SimpleNamespace(config={"dataset": {"classes": classes}, **parts})
    return SimpleNamespace(account="visits", target_epsilon=epsilon, trials=[trial])


PLAN = plan_of()


def outcome(
    name: str, mean: float, margin: float, rank: int, points: int = 4, *, shows_map: bool = False
) -> Measurement:
    way = Way(name=name, words=f"tuning={name}", shows_map=shows_map, points=points)
    return Measurement(way=way, mean=mean, margin=margin, searches=5, best_rank=rank)


def compared(on: MeasuredSet = SMALL, epsilon: float = 3.0) -> Comparison:
    outcomes = (
        outcome("line", 0.9, 0.01, 1),
        outcome("map", 0.88, 0.012, 1, shows_map=True),
        outcome("one", 0.8, 0.01, 3, points=1),
    )
    return Comparison(measured_on=on, epsilon=epsilon, outcomes=outcomes)


def test_the_numbers_that_come_with_the_program_are_those_that_were_measured(tmp_path: Path) -> None:
    benchmark = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "grid_sizes.py"), run_name="imported")
    written = tmp_path / FILE.name
    written.write_text(benchmark["written_evidence"]())
    assert written.read_bytes() == FILE.read_bytes()


def test_features_are_compared_with_features_alone_and_words_of_all_searches_are_named() -> None:
    frozen = replace(SMALL, features=True, words="grid=small")
    evidence = Evidence(comparisons=[compared(SMALL), compared(frozen)])
    for features, on in ((False, SMALL), (True, frozen)):
        nearest = evidence.nearest_comparison("small", 1000, 9, 3.0, features=features)
        assert nearest is not None
        assert nearest.measured_on is on
    text = "\n".join(advice_table_lines(compared(frozen), PLAN))
    assert "1000 records of 9 frozen features" in text
    assert "Add these words to `dpsweep sweep`:\n  grid=small tuning=line" in text
    assert "grid=small" not in "\n".join(advice_table_lines(compared(SMALL), PLAN))


def test_the_nearest_measurement_is_that_of_the_same_data_or_else_of_the_nearest_size() -> None:
    measured = [compared(on, epsilon) for on in (SMALL, LARGE) for epsilon in (1.0, 8.0)]
    evidence = Evidence(comparisons=measured)
    for (name, records, inputs, epsilon), found in {
        ("small", 60000, 9, 2.0): measured[0],
        ("other", 6000, 9, 3.0): measured[1],
        ("other", 9000, 9, 0.2): measured[2],
        ("other", 500000, 9, 70.0): measured[3],
        ("other", 500000, 9, 90.0): None,
        ("small", 1000, 9, 0.09): None,
        ("other", 700000, 9, 1.0): None,
        ("other", 90, 9, 1.0): None,
        ("other", 1000, 91, 1.0): None,
        ("small", 1000, 91, 1.0): measured[0],
        ("small", 1000, 9, float("inf")): None,
        ("small", 1000, 9, 0.0): None,
    }.items():
        assert evidence.nearest_comparison(name, records, inputs, epsilon) is found


def test_a_search_is_advised_where_it_is_shown_to_be_better_than_one_point() -> None:
    best, with_map, one = compared().outcomes
    assert (compared().advised_measurement, compared().best_measurement_with_map) == (best, with_map)
    undecided = replace(compared(), outcomes=(best, with_map, replace(one, best_rank=1)))
    assert undecided.advised_measurement == best, "its mean is ten points higher"
    level = replace(compared(), outcomes=(best, with_map, replace(one, best_rank=1, mean=0.895)))
    assert level.advised_measurement.way.name == "one"
    said = "\n".join(advice_table_lines(level, PLAN))
    assert (
        "To release a model without a map, train one point, since no search is shown to be better. "
        "Add these words to `dpsweep sweep`:\n  tuning=one"
    ) in said


def test_balanced_accuracy_is_named_and_the_users_metric_stays() -> None:
    balanced = replace(SMALL, words="score.metric=balanced_accuracy")
    said = "\n".join(advice_table_lines(compared(balanced), PLAN))
    assert "balanced accuracy" in said
    assert "score.metric" not in said
    assert "balanced" not in "\n".join(advice_table_lines(compared(), PLAN))


def test_what_nobody_measured_is_said_in_one_line() -> None:
    unlike = plan_of(classes=5, epsilon=20.0)
    (line,) = [one for one in advice_table_lines(compared(), unlike) if one.startswith("Nobody measured")]
    assert line == "Nobody measured epsilon 20 or 5 classes: the order of the ways may be another one there."
    assert not any("Nobody measured" in one for one in advice_table_lines(compared(), PLAN))


def test_where_steps_follow_from_records_no_words_are_advised() -> None:
    said = "\n".join(advice_table_lines(compared(), plan_of(recipe={"law": 1})))
    assert said.endswith("Add no words.")
    assert "Add these words" not in said


def test_all_that_was_measured_is_ranked_and_has_a_map_and_an_interval() -> None:
    for found in Evidence.read().comparisons:
        means = [one.mean for one in found.outcomes]
        assert means == sorted(means, reverse=True)
        assert found.best_measurement_with_map is not None
        assert any(one.way.points == 1 for one in found.outcomes)
        assert all(one.margin >= 0 and one.searches > 2 and one.best_rank >= 1 for one in found.outcomes)


def test_one_sentence_names_a_model_and_a_map() -> None:
    assert list(advice_sentence_lines(None, "small")) == []
    assert list(advice_sentence_lines(compared(), "small")) == [
        "Scores that searches reached on small at epsilon 3 (`dpsweep advise` ranks all ways of searching):",
        "  90.0 % ± 1.0 where only a model may be shown (line)",
        "  88.0 % ± 1.2 where a map and a model may be shown (map)",
    ]
    assert list(advice_sentence_lines(compared(), "visits")) == [
        "No search with such inputs was measured on visits. `dpsweep advise` ranks ways of searching on small, the "
        "measured data set that is nearest in size."
    ]
    _, with_map, one = compared().outcomes
    ends = {
        with_map: "  88.0 % ± 1.2 where a map and a model may be shown (map)",
        one: "  80.0 % ± 1.0 where only a model may be shown (one)",
    }
    for alone, end in ends.items():
        _, *said = advice_sentence_lines(replace(compared(), outcomes=(alone,)), "small")
        assert said == [end]


def test_ways_that_may_be_best_are_marked_and_the_advised_ones_named() -> None:
    said = "\n".join(advice_table_lines(compared(), PLAN))
    assert (
        "To release a model without a map, “line” has the highest mean. "
        "Add these words to `dpsweep sweep`:\n  tuning=line"
    ) in said
    assert "To release a map and a model, add these words to `dpsweep sweep`:\n  tuning=map" in said
    assert said.index("line *") < said.index("map *") < said.index("one ")
    assert "one *" not in said


@pytest.mark.parametrize("name", WAYS)
def test_every_way_that_was_measured_can_be_planned(compose_priced: Compose, name: str) -> None:
    priced = compose_priced(["dataset=digits", "privacy.epsilon=3", *LIGHT, *WAYS[name].words.split()])
    assert 2.9 < priced.quote.epsilon <= 3


def test_nothing_is_said_of_numbers_in_place_of_classes(compose_priced: Compose) -> None:
    numbers = ("dataset=regression", "trainer=dpsgd", "trainer.lr=0.1", "trainer.clip_norm=10")
    assert nearest_comparison_for_plan(compose_priced([*LIGHT, *numbers]).plan, 3.0) is None


def test_protected_units_count_in_place_of_records() -> None:
    sizes = {"name": "visits", "records": 9_000_000, "shape": [196], "classes": 2}
    for units, found in ((5000, True), (None, False)):
        plan = SimpleNamespace(trials=[SimpleNamespace(config={"dataset": {**sizes, "units": units}})])
        assert (nearest_comparison_for_plan(plan, 3.0) is not None) is found


def test_the_command_ranks_and_writes_nothing(program: Program, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    done = program("advise", "dataset=digits", "privacy.epsilon=3", *LIGHT, module=CLI)
    assert done.returncode == 0, done.stderr
    assert "a total epsilon of 3 by the accuracy that they reached on mnist_5k" in done.stdout
    assert "To release a map and a model, add these words to `dpsweep sweep`:" in done.stdout
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_the_curators_page_says_it_and_the_release_does_not(program: Program, ledger: Ledger) -> None:
    words = ("dataset=digits", "trainer=dpsgd", "trainer.lr=0.5,1", "trainer.clip_norm=1", "privacy.epsilon=3", *LIGHT)
    folder = folder_of(program(*words))
    said = "No search with such inputs was measured on digits"
    assert said in " ".join((folder / "curator" / "report.html").read_text().split())
    assert said not in " ".join(write_release(folder, ledger).read_text().split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("privacy.noise_multiplier=3",), "Expected privacy.epsilon, what a whole search may cost"),
        (("privacy.epsilon=0.01",), "Nothing was measured at epsilon 0.01; the nearest is "),
        (
            ("dataset.records=400", "sampler.batch_size=50"),
            "Nothing was measured on a data set like digits, with classes and about as many records",
        ),
    ],
)
def test_what_was_not_measured_is_one_sentence(program: Program, words: tuple[str, ...], sentence: str) -> None:
    refused = program("advise", "dataset=digits", *LIGHT, *words, module=CLI)
    assert refused.returncode == 2
    assert sentence in refused.stderr
