"""Learning curves and the papers' claims on them: training loss and accuracy of runs on data declared public.

A family is a method with several values of its gradient bound (c or r), each at one learning rate, or at the best of
those that were tried for it, and with one run in every repetition. A claim is a number in each repetition; its interval
is over the repetitions, so it needs several.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from dpsweep.accounting.records.plan import REPEAT
from dpsweep.reports.content.formatting import method_label, setting_text
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.figures.charts import Chart, Curve, draw_charts
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.reproduction.claims import APART
from dpsweep.reports.reproduction.finding import (
    Finding,
    estimate_text_in_percent,
    estimate_text_in_percentage_points,
    joint_verdict_of_parts,
    judged_parts_of_estimates_in_range,
    percentage_points_text,
    sheet_of_formatted_values,
    text_listing_estimates,
)
from dpsweep.reports.reproduction.results import RunCurve, SearchResults
from dpsweep.reports.statistics.point_scores import CLIP, LR, REGULARIZER, rows_of_method
from dpsweep.reports.statistics.verdict import IntervalEstimate, confidence_of_each_interval, mean_estimate_of_repeats

FLAT = 0.05
"""Largest spread of accuracies over r that counts as almost none."""

LOWER, ROUGHER = 0.05, 0.05
"""Smallest relative differences of training loss and of roughness that count as lower and as rougher."""

SMOOTH = 1e-12
"""Least roughness of a curve, so that a ratio to it is finite."""

LOSS, ACCURACY = "training_loss", "training_accuracy"

PUBLIC = (
    "The data set is a public benchmark, or made up, and was declared public for this figure: its runs reveal the "
    "exact training loss, so they protect nobody, whatever their noise."
)

Course = pd.DataFrame
"""One run's learning curve: a row per recorded step, with `step`, `training_loss` and `training_accuracy` (or nan)."""

Courses = Mapping[int, Mapping[float, Course]]
"""The learning curves of a family by repetition and by value of the bound."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A method, the key of its gradient bound, and the paper's letter for the bound."""

    method: str
    key: str
    letter: str

    def tuned_learning_curves(self, results: SearchResults) -> Courses:
        """The learning curve of each run at its value's learning rate, values ascending; a run without one is left out.

        Where several learning rates were tried, a value's is the one that `tuned` chooses.
        """
        courses: dict[int, dict[float, Course]] = {}
        rates = self.tuned_learning_rate_by_bound(results)
        for row in rows_of_method(results.table, self.method).sort_values(self.key).to_dict("records"):
            value, curve = float(row[self.key]), results.curve_of_run(row["trial"])
            if curve and float(row[LR]) == rates[value]:
                course = pd.DataFrame(curve)[["step", LOSS, ACCURACY]].astype(float)
                courses.setdefault(int(row.get(REPEAT) or 1), {})[value] = course
        return courses

    def tuned_learning_rate_by_bound(self, results: SearchResults) -> dict[float, float]:
        """By value of the bound: the learning rate with the least mean last training loss over the repetitions."""
        rows = rows_of_method(results.table, self.method).astype({LR: float, self.key: float})
        ends = rows.assign(end=[_last_training_loss(results.curve_of_run(trial)) for trial in rows["trial"]])
        means = ends.groupby([self.key, LR])["end"].mean().reset_index().sort_values("end", kind="stable")
        best = means.drop_duplicates(self.key).sort_values(self.key)
        return dict(zip(map(float, best[self.key]), map(float, best[LR]), strict=True))

    def bound_value_text(self, value: float) -> str:
        """A value as the paper writes it."""
        return f"{self.letter} = {setting_text(value)}"


def family_of_clipping_method(method: str) -> Family:
    """A method that clips to c."""
    return Family(method=method, key=CLIP, letter="c")


def family_of_normalizing_method(method: str) -> Family:
    """A method that normalizes with r."""
    return Family(method=method, key=REGULARIZER, letter="r")


def draw_learning_curves(results: SearchResults, families: Sequence[Family]) -> Drawing:
    """Training loss and training accuracy of each family, a curve per value: the mean of the repetitions."""
    panels = [
        Chart(
            title=f"{method_label(family.method)}: {title}",
            x_label="steps",
            y_label=title,
            curves=tuple(
                Curve(label=family.bound_value_text(value), x=tuple(course["step"]), y=tuple(course[column]))
                for value, course in _mean_curve_by_value(family.tuned_learning_curves(results)).items()
            ),
        )
        for family in families
        for title, column in (("training loss", LOSS), ("training accuracy", ACCURACY))
    ]
    families_text = " and ".join(f"{method_label(family.method)} over {family.letter}" for family in families)
    return draw_charts("figure", f"Training loss and training accuracy over the steps, {families_text}.", panels)


def finding_that_bounding_raises_loss(courses: Mapping[Family, Courses]) -> Finding:
    """The final training loss is higher where gradients are bounded more."""
    level = confidence_of_each_interval(len(courses))
    drops = tuple(
        mean_estimate_of_repeats(
            f"{method_label(family.method)}:",
            [_relative_drop_of_last_loss(curves) for curves in repeats.values()],
            level,
        )
        for family, repeats in courses.items()
    )
    parts = judged_parts_of_estimates_in_range(drops, estimate_text_in_percent, least=LOWER)
    return Finding(
        topic="A small c or r keeps the training loss high",
        claim="A small r or a small c induces large biases and keeps the loss from dropping sharply; large ones reduce "
        "them.",
        criterion=f"both methods' last training loss at the largest value is {LOWER:.0%} below that at the smallest",
        numbers=text_listing_estimates(drops, estimate_text_in_percent),
        verdict=joint_verdict_of_parts(parts),
        estimates=drops,
        parts=parts,
    )


def finding_that_accuracy_is_flat_in_r(clip: Courses, normal: Courses) -> Finding:
    """The accuracy curves differ over c under clipping, and hardly differ over r under normalization."""
    both = sorted(set(clip) & set(normal))
    level = confidence_of_each_interval(2)
    flat = mean_estimate_of_repeats(
        "mean spread over r", [_late_accuracy_range_across_runs(normal[repeat]) for repeat in both], level
    )
    gaps = [
        _late_accuracy_range_across_runs(clip[repeat]) - _late_accuracy_range_across_runs(normal[repeat])
        for repeat in both
    ]
    wider = mean_estimate_of_repeats("over c wider by", gaps, level)
    parts = (
        *judged_parts_of_estimates_in_range((flat,), estimate_text_in_percentage_points, most=FLAT),
        *judged_parts_of_estimates_in_range((wider,), estimate_text_in_percentage_points, least=APART),
    )
    return Finding(
        topic="Accuracy curves vary with c and hardly with r",
        claim="The accuracy curves vary with c under clipping, while r makes almost no impact on those of "
        "normalization.",
        criterion=f"averaged over the second half of the recorded steps, the accuracies of all r are within "
        f"{percentage_points_text(FLAT)} of each other, and at least {percentage_points_text(APART)} closer than "
        "those of all c",
        numbers=text_listing_estimates((flat, wider), estimate_text_in_percentage_points),
        verdict=joint_verdict_of_parts(parts),
        estimates=(flat, wider),
        parts=parts,
    )


def finding_that_small_r_fluctuates(clip: Courses, normal: Courses, *, c: float, r: float) -> Finding:
    """With a small r, the training loss fluctuates more under normalization than under clipping to c."""
    ratios = [
        math.log(_loss_roughness(normal[repeat][r]) / max(_loss_roughness(clip[repeat][c]), SMOOTH))
        for repeat in sorted(set(clip) & set(normal))
        if c in clip[repeat] and r in normal[repeat]
    ]
    log_ratio = mean_estimate_of_repeats("", ratios)
    rougher = IntervalEstimate(
        name="rougher by", **{end: math.expm1(getattr(log_ratio, end)) for end in ("value", "low", "high")}
    )
    parts = judged_parts_of_estimates_in_range((rougher,), estimate_text_in_percent, least=ROUGHER)
    return Finding(
        topic="With a small r the loss fluctuates more than under clipping",
        claim=f"The training loss of normalization with r = {setting_text(r)} fluctuates more than that of clipping "
        f"with c = {setting_text(c)}.",
        criterion="the mean absolute second difference of the recorded training losses, relative to their mean, "
        f"is {ROUGHER:.0%} larger, in the geometric mean over the repetitions",
        numbers=estimate_text_in_percent(rougher),
        verdict=joint_verdict_of_parts(parts),
        estimates=(rougher,),
        parts=parts,
    )


def sheet_of_tuned_learning_rates(results: SearchResults, families: Sequence[Family]) -> Sheet:
    """The learning rate of each value."""
    return sheet_of_formatted_values(
        "Learning rate of each value: the best that was tried, by the mean last training loss",
        ("method", "bound", "lr"),
        [
            (method_label(family.method), family.bound_value_text(value), rate)
            for family in families
            for value, rate in family.tuned_learning_rate_by_bound(results).items()
        ],
    )


def _last_training_loss(curve: RunCurve) -> float:
    """The last training loss; infinite for a run that diverged or has none."""
    loss = curve[-1].get(LOSS) if curve else None
    return math.inf if loss is None or not math.isfinite(loss) else float(loss)


def _mean_curve_by_value(repeats: Courses) -> dict[float, Course]:
    """The mean curve of each value over its repetitions."""
    values = sorted({value for curves in repeats.values() for value in curves})
    own = {value: [curves[value] for curves in repeats.values() if value in curves] for value in values}
    return {value: pd.concat(curves).groupby("step", as_index=False).mean() for value, curves in own.items()}


def _relative_drop_of_last_loss(courses: Mapping[float, Course]) -> float:
    """The relative drop of the last loss from the smallest to the largest value; nan for fewer than two runs."""
    ends = {value: float(course[LOSS].iloc[-1]) for value, course in courses.items()}
    return 1 - ends[max(ends)] / ends[min(ends)] if len(ends) > 1 else float("nan")


def _late_accuracy_range_across_runs(courses: Mapping[float, Course]) -> float:
    """The range of the accuracies, averaged over the second half of the steps; nan for fewer than two runs."""
    if len(courses) < 2:
        return float("nan")
    table = pd.concat([course.set_index("step")[ACCURACY] for course in courses.values()], axis=1)
    late = table.iloc[len(table) // 2 :]
    return float((late.max(axis=1) - late.min(axis=1)).mean())


def _loss_roughness(course: Course) -> float:
    """The mean absolute second difference of the loss over its mean."""
    return float(course[LOSS].diff().diff().abs().mean() / course[LOSS].mean())
