"""What papers read off learning curves: training loss and accuracy in the course of runs on data declared public.

A family is a method with one learning rate and several values of what bounds its gradients, one run for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from dpsweep.reports.content.formatting import method_label, number
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.figures.charts import Chart, Curve, Drawing, charts
from dpsweep.reports.figures.ridge import CLIP
from dpsweep.reports.reproduction.claims import APART, FLAT, REGULARIZER, points
from dpsweep.reports.reproduction.finding import Finding

LOWER, ROUGHER = 0.05, 0.05
"""What a training loss must be lower by, and a curve rougher by, relative to the other, to be called so."""

LOSS, ACCURACY = "training_loss", "training_accuracy"

PUBLIC = (
    "The data set is a public benchmark, or made up, and was declared public for this figure: the training loss was "
    "looked at exactly, so its runs protect nobody, whatever their noise."
)

Course = pd.DataFrame
"""One run's looks: a row each, with `step`, `training_loss` and `training_accuracy`; nan where one is not finite."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A method, the key of what bounds its gradients, and the paper's letter for that."""

    method: str
    key: str
    letter: str

    def courses(self, sweep: Sweep) -> dict[float, Course]:
        """The course of each run by its value, ascending; a run without a result has none."""
        rows = sweep.table[sweep.table["method"] == self.method]
        found = {float(row[self.key]): sweep.results.get(str(row["trial"])) for _, row in rows.iterrows()}
        return {
            value: pd.DataFrame(result.curator["curve"])[["step", LOSS, ACCURACY]].astype(float)
            for value, result in sorted(found.items(), key=lambda item: item[0])
            if result is not None and result.curator.get("curve")
        }

    def named(self, value: float) -> str:
        """A value as the paper writes it."""
        return f"{self.letter} = {number(value)}"


def clipped(method: str) -> Family:
    """A method that clips to c."""
    return Family(method=method, key=CLIP, letter="c")


def normalized(method: str) -> Family:
    """A method that normalizes with r."""
    return Family(method=method, key=REGULARIZER, letter="r")


def draw(sweep: Sweep, families: Sequence[Family]) -> Drawing:
    """Training loss and training accuracy of each family, a curve per value."""
    panels = [
        Chart(
            title=f"{method_label(family.method)}: {title}",
            x_label="steps",
            y_label=title,
            curves=tuple(
                Curve(label=family.named(value), x=tuple(course["step"]), y=tuple(course[column]))
                for value, course in family.courses(sweep).items()
            ),
        )
        for family in families
        for title, column in (("training loss", LOSS), ("training accuracy", ACCURACY))
    ]
    told = " and ".join(f"{method_label(family.method)} over {family.letter}" for family in families)
    return charts("figure", f"Training loss and training accuracy over the steps, {told}.", panels)


def biased(courses: Mapping[Family, Mapping[float, Course]]) -> Finding:
    """Where gradients are bounded more, the training loss ends higher."""
    ends = {
        family: {value: float(course[LOSS].iloc[-1]) for value, course in own.items()}
        for family, own in courses.items()
    }
    told = "; ".join(
        f"{method_label(family.method)}: "
        + ", ".join(f"{family.named(value)}: {loss:.3f}" for value, loss in own.items())
        for family, own in ends.items()
    )
    return Finding(
        claim="A small r or a small c induces large biases and keeps the loss from dropping sharply; large ones reduce "
        "them.",
        criterion=f"both methods' last training loss at the largest value is {LOWER:.0%} below that at the smallest",
        numbers=told,
        holds=bool(ends)
        and all(len(own) > 1 and own[max(own)] <= (1 - LOWER) * own[min(own)] for own in ends.values()),
    )


def flat_accuracy(clip: Mapping[float, Course], normal: Mapping[float, Course]) -> Finding:
    """The accuracy curves of clipping differ, those of normalization lie on one another."""
    steep, flat = _spread(clip), _spread(normal)
    return Finding(
        claim="The accuracy curves vary with c under clipping, while r makes almost no impact on those of "
        "normalization.",
        criterion=f"over the second half of the looks the accuracies of all r lie within {points(FLAT)} of each other "
        f"in the mean, and at least {points(APART)} closer than those of all c",
        numbers=f"mean spread over r {points(flat)}, over c {points(steep)}",
        holds=flat <= FLAT and steep - flat >= APART,
    )


def fluctuates(clip: Mapping[float, Course], normal: Mapping[float, Course], *, c: float, r: float) -> Finding:
    """Near to plain normalization, the training loss fluctuates more than where it is clipped at the same size."""
    found = {name: _roughness(own[value]) for name, own, value in (("c", clip, c), ("r", normal, r)) if value in own}
    told = {"c": f"c = {number(c)}", "r": f"r = {number(r)}"}
    return Finding(
        claim=f"The training loss of normalization with r = {number(r)} fluctuates more than that of clipping with "
        f"c = {number(c)}.",
        criterion="the mean absolute second difference of the training loss from look to look, relative to its mean, "
        f"is {ROUGHER:.0%} larger",
        numbers="; ".join(f"{told[name]}: {value:.4f}" for name, value in found.items()),
        holds=len(found) == 2 and found["r"] >= (1 + ROUGHER) * found["c"],
    )


def _spread(courses: Mapping[float, Course]) -> float:
    """How far the accuracies lie apart, in the mean over the second half of the looks; nan for fewer than two runs."""
    if len(courses) < 2:
        return float("nan")
    table = pd.concat([course.set_index("step")[ACCURACY] for course in courses.values()], axis=1)
    late = table.iloc[len(table) // 2 :]
    return float((late.max(axis=1) - late.min(axis=1)).mean())


def _roughness(course: Course) -> float:
    """The mean absolute second difference of the loss over its mean."""
    return float(course[LOSS].diff().diff().abs().mean() / course[LOSS].mean())
