"""Advice in words: what a total epsilon bought on the nearest data set, as benchmarks/grid_sizes.py measured it.

The numbers come with the program, in evidence.json, and are about public benchmarks: advice never depends on the scores
or the records of an account.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsweep.accounting.notation import text_with_all_digits
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.stored_names.stored_classes import RECIPE
from dpsweep.reports.content.trial_config import FrozenFeatures

FILE = Path(__file__).with_name("evidence.json")
LARGEST_FACTOR = 10.0
"""Numbers of records, of a record's inputs, and epsilons that differ by a larger factor are not compared."""

NEAR = 0.01
"""The largest distance to the best mean at which one point is advised, if no way is shown to be better."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to spend an epsilon, by the overrides of a sweep; one point is no search."""

    name: str
    words: str
    shows_map: bool
    points: int


@dataclass(frozen=True, kw_only=True)
class MeasuredSet:
    """A data set that searches were measured on, with its nominal sizes.

    `features` says whether its inputs are frozen features; `words` are overrides that all its searches had.
    """

    name: str
    records: int
    inputs: int
    classes: int
    features: bool
    words: str

    @property
    def metric(self) -> str:
        """What its searches were scored and are told by."""
        return "balanced accuracy" if "score.metric=balanced_accuracy" in self.words else "accuracy"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The mean accuracy of the models that a way handed over, and half of the width of its 95 % interval.

    `best_rank` is the best rank that the way may have on its data set, with 95 % confidence for all ways at once.
    """

    way: Way
    mean: float
    margin: float
    searches: int
    best_rank: int

    @property
    def may_be_best(self) -> bool:
        """Whether no other way is shown to be better."""
        return self.best_rank == 1


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All ways on one data set at one total epsilon, best mean first."""

    measured_on: MeasuredSet
    epsilon: float
    outcomes: Sequence[Measurement]

    def overrides_of_measurement(self, one: Measurement) -> str:
        """The overrides of a way, as it was measured, without its metric: a user has one of their own."""
        words = (*self.measured_on.words.split(), *one.way.words.split())
        return " ".join(word for word in words if not word.startswith("score.metric="))

    @property
    def advised_measurement(self) -> Measurement:
        """One point without a search; the best mean, if that is shown to be better or is not near."""
        best = self.outcomes[0]
        alone = (one for one in self.outcomes if one.way.points == 1 and one.may_be_best)
        return next((one for one in alone if best.mean - one.mean <= NEAR), best)

    @property
    def best_measurement_with_map(self) -> Measurement | None:
        """The way with the best mean among those that show a map."""
        return next((one for one in self.outcomes if one.way.shows_map), None)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All comparisons that were measured."""

    comparisons: Sequence[Comparison]

    @classmethod
    def read(cls, path: Path = FILE) -> Evidence:
        """The evidence that comes with the program."""
        form = json.loads(path.read_text())
        ways = {name: Way(name=name, **way) for name, way in form["ways"].items()}
        sets = {name: MeasuredSet(name=name, **sizes) for name, sizes in form["data"].items()}

        def rank_measurements(cells: Mapping[str, Mapping[str, Any]]) -> tuple[Measurement, ...]:
            outcomes = [Measurement(way=ways[name], **cell) for name, cell in cells.items()]
            return tuple(sorted(outcomes, key=lambda one: -one.mean))

        return cls(
            comparisons=tuple(
                Comparison(
                    measured_on=sets[cell["data"]],
                    epsilon=cell["epsilon"],
                    outcomes=rank_measurements(cell["outcomes"]),
                )
                for cell in form["cells"]
            )
        )

    def nearest_comparison(
        self, name: str, records: int, inputs: int, epsilon: float, *, features: bool = False
    ) -> Comparison | None:
        """The comparison for this data set, or else for the one nearest in size; None if none is near.

        Sizes are nominal, and nearest in ratio: the number of records (of units, where these are protected) first, then
        that of a record's inputs, then epsilon. Frozen features are compared with frozen features alone.
        """
        if not 0 < epsilon < math.inf:
            return None

        def distance_to_comparison(one: Comparison) -> tuple[bool, float, float, float]:
            on = one.measured_on
            return (
                on.name != name,
                abs(math.log(on.records / records)),
                abs(math.log(on.inputs / inputs)),
                abs(math.log(one.epsilon / epsilon)),
            )

        def is_near(one: Comparison) -> bool:
            other, by_records, by_inputs, by_epsilon = distance_to_comparison(one)
            most = math.log(LARGEST_FACTOR)
            return by_epsilon <= most and (not other or max(by_records, by_inputs) <= most)

        alike = [one for one in self.comparisons if one.measured_on.features == features]
        return min(filter(is_near, alike), key=distance_to_comparison, default=None)


SOURCE = "docs/search.md"


def nearest_comparison_for_plan(plan: Plan, epsilon: float) -> Comparison | None:
    """The nearest measured comparison, by the plan's declared sizes.

    None for numbers in place of classes, and where nothing near was measured.
    """
    config = plan.trials[0].config
    declared, features = config.get("dataset", {}), FrozenFeatures.from_trial_config(config)
    if not {"name", "records", "shape", "classes"} <= set(declared) or declared["classes"] == 1:
        return None
    protected = declared.get("units") or declared["records"]
    inputs = math.prod(declared["shape"]) if features is None else features.feature_count
    return Evidence.read().nearest_comparison(
        declared["name"], protected, inputs, epsilon, features=features is not None
    )


def why_nothing_was_measured(plan: Plan, epsilon: float) -> str:
    """Why there is no comparison for a plan at this epsilon: nothing near it was measured, or nothing of its size."""
    every = {one.epsilon for one in Evidence.read().comparisons}
    measured = [other for other in sorted(every) if nearest_comparison_for_plan(plan, other) is not None]
    if not measured:
        like = f"a data set like {plan.account}, with classes and about as many records"
        return f"Nothing was measured on {like} ({SOURCE})."
    nearest = text_with_all_digits(min(measured, key=lambda other: abs(math.log(other / epsilon))))
    return f"Nothing was measured at epsilon {text_with_all_digits(epsilon)}; the nearest is {nearest}."


def advice_sentence_lines(found: Comparison | None, name: str) -> Iterator[str]:
    """The lines of a sentence on what the epsilon bought, for a model and for a map; none without a comparison.

    `name` is that of the data set. Accuracies of another one are not its own: then the sentence says where they are.
    """
    if found is None:
        return
    if found.measured_on.name != name:
        yield (
            f"No search with such inputs was measured on {name}. `dpsweep advise` ranks ways of searching on "
            f"{found.measured_on.name}, the measured data set that is nearest in size."
        )
        return
    advised, best_map = found.advised_measurement, found.best_measurement_with_map
    yield (
        f"Scores that searches reached on {found.measured_on.name} at epsilon {text_with_all_digits(found.epsilon)} "
        "(`dpsweep advise` ranks all ways of searching):"
    )
    if best_map is not advised:
        yield f"  {_accuracy_text(advised)} where only a model may be shown ({advised.way.name})"
    if best_map is not None:
        yield f"  {_accuracy_text(best_map)} where a map and a model may be shown ({best_map.way.name})"


def _unmeasured_lines(found: Comparison, plan: Plan) -> Iterator[str]:
    """A line that says in what the plan is unlike all that was measured; none where it is not."""
    classes, every = plan.trials[0].config["dataset"]["classes"], Evidence.read().comparisons
    unlike = []
    if plan.target_epsilon is not None and plan.target_epsilon > max(one.epsilon for one in every):
        unlike.append(f"epsilon {text_with_all_digits(plan.target_epsilon)}")
    if classes not in {one.measured_on.classes for one in every}:
        unlike.append(f"{classes} classes")
    if unlike and found.measured_on.name != plan.account:
        yield f"Nobody measured {' or '.join(unlike)}: the order of the ways may be another one there."


def advice_table_lines(found: Comparison, plan: Plan) -> Iterator[str]:
    """All ways, a line each, and the words to add to a sweep's command for the advised ones."""
    on, least = found.measured_on, min(one.searches for one in found.outcomes)
    width = max(len(one.way.name) for one in found.outcomes) + 2
    sizes = f"{on.records} records of {on.inputs} {'frozen features' if on.features else 'numbers'} each"
    yield (
        f"This table ranks ways of spending a total epsilon of {text_with_all_digits(found.epsilon)} by the "
        f"{on.metric} that they reached on {on.name} ({sizes}).\n"
    )
    yield f"{'way':<{width}}  {on.metric:>13}  shows    overrides"
    for one in found.outcomes:
        name = f"{one.way.name} *" if one.may_be_best else one.way.name
        shows = "a map" if one.way.shows_map else "a model"
        yield f"{name:<{width}}  {_accuracy_text(one):>13}  {shows:<7}  {found.overrides_of_measurement(one)}"
    yield (
        f"\nEach number is the mean over {least} or more searches, with its 95 % interval, of logistic regression on "
        f"records that no run trained on ({SOURCE})."
    )
    yield (
        "A way with * may be the best one, with 95 % confidence for all ways at once. Each way costs the whole epsilon."
    )
    yield from _unmeasured_lines(found, plan)
    if RECIPE in plan.trials[0].config:
        yield (
            "All took fixed numbers of steps and records. Those of your command follow from records and epsilon "
            f"(steps=auto), with which no way was measured but one run ({SOURCE}). Add no words."
        )
        return
    advised, best_map = found.advised_measurement, found.best_measurement_with_map
    reason = f"“{advised.way.name}” has the highest mean."
    if advised.way.points == 1:
        reason = "train one point, since no search is shown to be better."
    yield f"To release a model without a map, {reason} Add these words to `dpsweep sweep`:"
    yield f"  {found.overrides_of_measurement(advised)}"
    if best_map is not None and best_map is not advised:
        yield "To release a map and a model, add these words to `dpsweep sweep`:"
        yield f"  {found.overrides_of_measurement(best_map)}"


def _accuracy_text(one: Measurement) -> str:
    return f"{100 * one.mean:.1f} % ± {100 * one.margin:.1f}"
