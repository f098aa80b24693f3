"""Learning curves and the papers' claims on them: training loss and accuracy of runs on data declared public.

A family is a method with several values of its gradient bound (c or r), each at one learning rate, or at the best of
those that were tried for it, and with one run in every repetition. A claim is a number in each repetition; its interval
is over the repetitions, so it needs several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from dpsweep.accounting.records.plan import REPEAT
from dpsweep.reports.content.formatting import method_label, setting_text
from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.figures.charts import Chart, curves_of_columns, draw_charts
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.reproduction.claims import BETTER
from dpsweep.reports.reproduction.finding import (
    PERCENT,
    ClaimEvidence,
    Margin,
    Quantity,
    sheet_of_formatted_values,
    weigh,
)
from dpsweep.reports.reproduction.results import RunCurve, SearchResults
from dpsweep.reports.statistics.point_scores import CLIP, LR, METHOD, REGULARIZER, rows_of_method
from dpsweep.reports.statistics.verdict import IntervalEstimate, mean_estimate_of_repeats

FLAT = Margin(most=0.05, source="ours: a third of the 15 points that Mohapatra et al. show")
LOWER = Margin(least=0.05, above=0.0, unit=PERCENT, source="ours: a twentieth of the loss")
ROUGHER = Margin(least=0.05, above=0.0, unit=PERCENT, source="ours: a twentieth")

HALVED = Margin(
    least=0.5,
    above=0.0,
    unit=PERCENT,
    source="Yu et al. 2019, Equation 6: the clip norm falls to a half, as gradients do",
)

SMOOTH = 1e-12
"""Least roughness of a curve, so that a ratio to it is finite."""

LOSS, ACCURACY, CURVE = "training_loss", "training_accuracy", "curve"
NORMS = {"gradient_norm_q50": "the median", "gradient_norm_q90": "the 90 % quantile"}
"""Quantiles of the norms of single examples' gradients, and how they are called."""

SMALLEST, LARGEST = 1e-9, 1e9
"""Losses are drawn as if they were in this range; those of diverged runs are the largest."""

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

    def tuned_learning_curves(self, runs: pd.DataFrame) -> Courses:
        """The learning curve of each run at its value's learning rate, values ascending; a run without one is left out.

        Where several learning rates were tried, a value's is the one that `tuned` chooses.
        """
        courses: dict[int, dict[float, Course]] = {}
        rates = self.tuned_learning_rate_by_bound(runs)
        for row in rows_of_method(runs, self.method).sort_values(self.key).to_dict("records"):
            value, curve = float(row[self.key]), row[CURVE]
            if curve and float(row[LR]) == rates[value]:
                course = pd.DataFrame(curve)[["step", LOSS, ACCURACY]].astype(float)
                courses.setdefault(int(row.get(REPEAT) or 1), {})[value] = course
        return courses

    def tuned_learning_rate_by_bound(self, runs: pd.DataFrame) -> dict[float, float]:
        """By value of the bound: the learning rate with the least mean last training loss over the repetitions."""
        rows = rows_of_method(runs, self.method).astype({LR: float, self.key: float})
        ends = rows.assign(end=[_last_training_loss(curve) for curve in rows[CURVE]])
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


def runs_with_curves(results: SearchResults) -> pd.DataFrame:
    """The search's runs that recorded training loss and accuracy, with each one's learning curve in a column."""
    curves = [results.curve_of_run(trial) for trial in results.table["trial"]]
    known = [bool(curve) and {LOSS, ACCURACY} <= curve[-1].keys() for curve in curves]
    runs: pd.DataFrame = results.table.assign(**{CURVE: pd.Series(curves, index=results.table.index)})[known]
    return runs


def table_scored_by_last_loss(results: SearchResults) -> pd.DataFrame:
    """The search's table with the log10 of each run's last training loss, `loss`, and minus that as its score.

    A run without a recorded loss keeps its row, without a score.
    """
    curves = results.table["trial"].map(results.curve_of_run)
    losses = curves.map(lambda curve: _last_training_loss(curve) if curve else math.nan)
    diverged = results.table["state"] == State.DIVERGED
    logs = losses.where(~diverged, LARGEST).clip(SMALLEST, LARGEST).map(math.log10, na_action="ignore")
    return results.table.assign(
        loss=logs,
        accuracy=-logs,
        accuracy_low=float("nan"),
        accuracy_high=float("nan"),
        state=results.table["state"].where(~diverged, State.FINISHED),
    )


def draw_learning_curves(results: SearchResults, families: Sequence[Family]) -> Drawing:
    """Training loss and training accuracy of each family, a curve per value: the mean of the repetitions."""
    panels, runs = [], runs_with_curves(results)
    for family in families:
        mean_curves = _mean_curve_by_value(family.tuned_learning_curves(runs))
        for title, column in (("training loss", LOSS), ("training accuracy", ACCURACY)):
            curves = {
                family.bound_value_text(value): course.set_index("step")[column]
                for value, course in mean_curves.items()
            }
            panels.append(
                Chart(
                    title=f"{method_label(family.method)}: {title}",
                    x_label="steps",
                    y_label=title,
                    curves=curves_of_columns(pd.DataFrame(curves)),
                )
            )
    families_text = " and ".join(f"{method_label(family.method)} over {family.letter}" for family in families)
    return draw_charts("figure", f"Training loss and training accuracy over the steps, {families_text}.", *panels)


def evidence_that_bounding_raises_loss(courses: Mapping[Family, Courses]) -> ClaimEvidence:
    """The final training loss is higher where gradients are bounded more."""
    return weigh(
        Quantity(
            name=f"{method_label(family.method)}:",
            estimate=_mean_of_repeats([_relative_drop_of_last_loss(curves) for curves in repeats.values()]),
            margin=LOWER,
        )
        for family, repeats in courses.items()
    )


def evidence_that_accuracy_is_flat_in_r(clip: Courses, normal: Courses) -> ClaimEvidence:
    """The accuracy curves differ over c under clipping, and hardly differ over r under normalization."""
    both = sorted(set(clip) & set(normal))
    ranges = [_late_accuracy_range_across_runs(normal[repeat]) for repeat in both]
    wider = [_late_accuracy_range_across_runs(clip[repeat]) - flat for repeat, flat in zip(both, ranges, strict=True)]
    return weigh(
        (
            Quantity(name="mean spread over r", estimate=_mean_of_repeats(ranges), margin=FLAT),
            Quantity(name="over c wider by", estimate=_mean_of_repeats(wider), margin=BETTER),
        )
    )


def evidence_that_small_r_fluctuates(clip: Courses, normal: Courses, *, c: float, r: float) -> ClaimEvidence:
    """With a small r, the training loss fluctuates more under normalization than under clipping to c."""
    ratios = [
        math.log(_loss_roughness(normal[repeat][r]) / max(_loss_roughness(clip[repeat][c]), SMOOTH))
        for repeat in sorted(set(clip) & set(normal))
        if c in clip[repeat] and r in normal[repeat]
    ]

    def ratio_at_level(name: str, level: float) -> IntervalEstimate:
        logs = mean_estimate_of_repeats("", ratios, level)
        return IntervalEstimate(name=name, **{end: math.expm1(getattr(logs, end)) for end in ("value", "low", "high")})

    return weigh((Quantity(name="rougher by", estimate=ratio_at_level, margin=ROUGHER),))


def runs_with_norms(results: SearchResults) -> pd.DataFrame:
    """The search's runs that recorded norms of gradients, with each one's learning curve in a column."""
    runs = runs_with_curves(results)
    return runs.loc[runs[CURVE].map(lambda curve: NORMS.keys() <= curve[-1].keys()).astype(bool)]


def evidence_that_gradient_norms_fall(runs: pd.DataFrame, column: str) -> ClaimEvidence:
    """A quantile of the norms of gradients falls from the first to the last recorded step, by every method."""
    by_method = {
        str(method): [1 - curve[-1][column] / curve[0][column] for curve in own[CURVE]]
        for method, own in runs.groupby(METHOD, sort=False)
    }
    means = {str(method): mean_curve(own)[column] for method, own in runs.groupby(METHOD, sort=False)}
    return weigh(
        (
            Quantity(name=f"{method_label(method)} falls by", estimate=_mean_of_repeats(falls), margin=HALVED)
            for method, falls in by_method.items()
        ),
        remark="; ".join(
            f"{method_label(method)} from {course.iloc[0]:.3g} to {course.iloc[-1]:.3g}, highest {course.max():.3g}"
            for method, course in means.items()
        ),
    )


def _mean_of_repeats(values: Sequence[float]) -> Callable[[str, float], IntervalEstimate]:
    return lambda name, level: mean_estimate_of_repeats(name, values, level)


def sheet_of_tuned_learning_rates(results: SearchResults, families: Sequence[Family]) -> Sheet:
    """The learning rate of each value."""
    runs = runs_with_curves(results)
    return sheet_of_formatted_values(
        "Learning rate of each value: the best that was tried, by the mean last training loss",
        ("method", "bound", "lr"),
        [
            (method_label(family.method), family.bound_value_text(value), rate)
            for family in families
            for value, rate in family.tuned_learning_rate_by_bound(runs).items()
        ],
    )


def _last_training_loss(curve: RunCurve) -> float:
    """The last training loss; infinite for a run that diverged or has none."""
    loss = curve[-1].get(LOSS) if curve else None
    return math.inf if loss is None or not math.isfinite(loss) else float(loss)


def mean_curve(runs: pd.DataFrame) -> Course:
    """The mean learning curve of these runs."""
    return (
        pd.concat([pd.DataFrame(curve).astype(float) for curve in runs[CURVE]]).groupby("step", as_index=False).mean()
    )


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
