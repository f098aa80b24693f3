"""Learning curves and the papers' claims on them: training loss and accuracy of runs on data declared public.

A family is a method with one learning rate and several values of its gradient bound (c or r), one run for each.
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
"""Smallest relative differences of training loss and of roughness that count as lower and as rougher."""

LOSS, ACCURACY = "training_loss", "training_accuracy"

PUBLIC = (
    "The data set is a public benchmark, or made up, and was declared public for this figure: its runs reveal the "
    "exact training loss, so they protect nobody, whatever their noise."
)

Course = pd.DataFrame
"""One run's learning curve: a row per recorded step, with `step`, `training_loss` and `training_accuracy` (or nan)."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A method, the key of its gradient bound, and the paper's letter for the bound."""

    method: str
    key: str
    letter: str

    def courses(self, sweep: Sweep) -> dict[float, Course]:
        """The learning curve of each run by its bound, ascending; a run without a result has none."""
        rows = sweep.table[sweep.table["method"] == self.method]
        results = {float(row[self.key]): sweep.results.get(str(row["trial"])) for _, row in rows.iterrows()}
        return {
            value: pd.DataFrame(result.curator["curve"])[["step", LOSS, ACCURACY]].astype(float)
            for value, result in sorted(results.items(), key=lambda item: item[0])
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
    families_text = " and ".join(f"{method_label(family.method)} over {family.letter}" for family in families)
    return charts("figure", f"Training loss and training accuracy over the steps, {families_text}.", panels)


def biased(courses: Mapping[Family, Mapping[float, Course]]) -> Finding:
    """The final training loss is higher where gradients are bounded more."""
    ends = {
        family: {value: float(course[LOSS].iloc[-1]) for value, course in curves.items()}
        for family, curves in courses.items()
    }
    numbers = "; ".join(
        f"{method_label(family.method)}: "
        + ", ".join(f"{family.named(value)}: {loss:.3f}" for value, loss in losses.items())
        for family, losses in ends.items()
    )
    return Finding(
        claim="A small r or a small c induces large biases and keeps the loss from dropping sharply; large ones reduce "
        "them.",
        criterion=f"both methods' last training loss at the largest value is {LOWER:.0%} below that at the smallest",
        numbers=numbers,
        holds=bool(ends)
        and all(
            len(losses) > 1 and losses[max(losses)] <= (1 - LOWER) * losses[min(losses)] for losses in ends.values()
        ),
    )


def flat_accuracy(clip: Mapping[float, Course], normal: Mapping[float, Course]) -> Finding:
    """The accuracy curves differ over c under clipping, and hardly differ over r under normalization."""
    steep, flat = _spread(clip), _spread(normal)
    return Finding(
        claim="The accuracy curves vary with c under clipping, while r makes almost no impact on those of "
        "normalization.",
        criterion=f"averaged over the second half of the recorded steps, the accuracies of all r are within "
        f"{points(FLAT)} of each other, and at least {points(APART)} closer than those of all c",
        numbers=f"mean spread over r {points(flat)}, over c {points(steep)}",
        holds=flat <= FLAT and steep - flat >= APART,
    )


def fluctuates(clip: Mapping[float, Course], normal: Mapping[float, Course], *, c: float, r: float) -> Finding:
    """With a small r, the training loss fluctuates more under normalization than under clipping to c."""
    rough = {
        name: _roughness(curves[value]) for name, curves, value in (("c", clip, c), ("r", normal, r)) if value in curves
    }
    labels = {"c": f"c = {number(c)}", "r": f"r = {number(r)}"}
    return Finding(
        claim=f"The training loss of normalization with r = {number(r)} fluctuates more than that of clipping with "
        f"c = {number(c)}.",
        criterion="the mean absolute second difference of the recorded training losses, relative to their mean, "
        f"is {ROUGHER:.0%} larger",
        numbers="; ".join(f"{labels[name]}: {value:.4f}" for name, value in rough.items()),
        holds=len(rough) == 2 and rough["r"] >= (1 + ROUGHER) * rough["c"],
    )


def _spread(courses: Mapping[float, Course]) -> float:
    """The range of the accuracies, averaged over the second half of the steps; nan for fewer than two runs."""
    if len(courses) < 2:
        return float("nan")
    table = pd.concat([course.set_index("step")[ACCURACY] for course in courses.values()], axis=1)
    late = table.iloc[len(table) // 2 :]
    return float((late.max(axis=1) - late.min(axis=1)).mean())


def _roughness(course: Course) -> float:
    """The mean absolute second difference of the loss over its mean."""
    return float(course[LOSS].diff().diff().abs().mean() / course[LOSS].mean())
