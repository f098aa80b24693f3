"""What explains a method's scores: its learning rate, its other setting, or both together, or only their product.

Every sentence rests on an interval, and is left out where the runs cannot decide it. Apart from its noise, a clipped
step is at most lr x clip_norm long, and a normalized one at most lr: so scores are also shown against lr x clip_norm, a
line per clip norm, and those of normalized methods against lr on the same axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from dpsweep.accounting.stored_names.stored_classes import tag_or_path_of_class
from dpsweep.reports.content.facts import RESULTS
from dpsweep.reports.content.formatting import (
    axis_label,
    enumeration_text,
    method_label,
    percent_interval_text,
    percent_text,
    setting_text,
)
from dpsweep.reports.content.map_axes import are_all_numbers
from dpsweep.reports.content.score_scale import ScoreScale
from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.content.tables import Cell, Sheet
from dpsweep.reports.content.told_score import same_answer_interval
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.figures import charts
from dpsweep.reports.figures.charts import Chart, Curve
from dpsweep.reports.statistics.point_scores import CLIP, LR, METHOD, NOISE, group_rows_by_column, point_scores
from dpsweep.reports.statistics.score_grid import (
    BY_BOTH,
    BY_RATE,
    BY_SETTING,
    Slope,
    VarianceShares,
    range_at_best_rate,
    score_grid,
    slope_of_best_rate,
    variance_shares,
)
from dpsweep.reports.statistics.verdict import IntervalEstimate, Verdict

HARDLY = 0.1
"""Share of the variance up to which a setting, alone and with the other, hardly matters."""

TOGETHER = 0.25
"""Share of the variance by the interaction from which on two settings must be tuned together."""


@dataclass(frozen=True, kw_only=True)
class SettingEffect:
    """A method at one noise, its setting beside the learning rate, and the shares that each explains.

    `at_best_rate` is the range of the scores over the setting at the best learning rate, which is its name.
    """

    method: str
    noise: str
    setting: str
    shares: VarianceShares
    at_best_rate: IntervalEstimate
    slope: Slope | None

    @property
    def title(self) -> str:
        """The method, at its noise if it has one."""
        return f"{self.method} at noise multiplier {self.noise}" if self.noise else self.method

    @property
    def variance_share_estimates(self) -> tuple[IntervalEstimate, IntervalEstimate, IntervalEstimate]:
        """The shares by the learning rate, by the setting, and by their interaction."""
        names = ("lr", self.setting, "their interaction")
        by_rate, by_setting, by_both = (
            self.shares.total_share_of_parts(name, part)
            for name, part in zip(names, (BY_RATE, BY_SETTING, BY_BOTH), strict=True)
        )
        return by_rate, by_setting, by_both


def what_mattered_exhibit(sweep: Sweep) -> Exhibit | None:
    """The exhibit for every full grid whose points differ by more than noise; None without one."""
    same_answer = same_answer_interval(sweep)
    effects = list(_setting_effects(sweep.compared_rows, None if same_answer is None else same_answer[1]))
    if not effects:
        return None
    rows: list[tuple[Cell, ...]] = [
        (effect.title, one.name, *((percent_text(share), share) for share in (one.value, one.low, one.high)))
        for effect in effects
        for one in effect.variance_share_estimates
    ]
    columns = ("method", "explained by", "share", "at least", "at most")
    return Exhibit(
        key="what-mattered",
        title="What mattered",
        note="Shares of the variance of the scores over a method's grid, in which a diverged run scores 0; the part "
        "that noise explains is taken off. The intervals (95 %) are from repetitions where there are some, and else "
        "from the number of scored records and the noise of their counts: then they do not cover that another run of "
        "the same point may end elsewhere. Shares depend on the ranges of the grid; what a setting does at the best lr "
        "is said in points of the score.",
        source=RESULTS,
        findings=tuple(" ".join(_effect_sentences(effect, sweep.score_scale)) for effect in effects),
        conclusion="; ".join(_tuning_clauses(effects, sweep.compared_rows)),
        sheets=(Sheet.from_cells("Shares of the variance, in percent", columns, rows),),
    )


def _setting_effects(table: pd.DataFrame, best_constant: float | None) -> Iterator[SettingEffect]:
    if LR not in table:
        return
    for (method, noise), rows in table.groupby([METHOD, NOISE], sort=False, dropna=False):
        key = _only_varying_setting(rows)
        grid = None if key is None else score_grid(rows, key)
        shares = None if grid is None else variance_shares(grid)
        if key is not None and grid is not None and shares is not None:
            yield SettingEffect(
                method=method_label(str(method)),
                noise="" if rows[NOISE].isna().all() else setting_text(noise),
                setting=axis_label(key),
                shares=shares,
                at_best_rate=range_at_best_rate(grid),
                slope=slope_of_best_rate(grid, best_constant) if key == CLIP else None,
            )


def _only_varying_setting(rows: pd.DataFrame) -> str | None:
    """The only setting of the trainer beside its learning rate that varies; None if there is none, or several."""
    names = [str(name) for name in rows.columns if str(name).startswith("trainer.") and name != LR]
    varying = [name for name in names if rows[name].nunique() > 1]
    return varying[0] if len(varying) == 1 and are_all_numbers(rows[varying[0]]) else None


def _effect_sentences(effect: SettingEffect, scale: ScoreScale) -> Iterator[str]:
    by_rate, by_setting, by_both = effect.variance_share_estimates
    yield (
        f"{effect.title}: of the variance over the grid, lr explains {_percent_with_interval_text(by_rate)}, "
        f"{effect.setting} "
        f"{_percent_with_interval_text(by_setting)}, and their interaction {_percent_with_interval_text(by_both)}."
    )
    one, points = effect.at_best_rate, f"points of {scale.quality_text}" if scale.quality_text else "points"
    yield (
        f"At the best lr, {one.name}, the best and the worst {effect.setting} are {percent_text(one.value)} {points} "
        f"apart ({percent_interval_text(one.low, one.high)})."
    )
    yield from (sentence for _, sentence in _tuning_verdicts(effect))
    yield from _slope_sentences(effect.slope)


def _slope_sentences(slope: Slope | None) -> Iterator[str]:
    """The exponent; nothing if it is not told, or may as well be -1 as 0."""
    if slope is None or slope.reason or (slope.estimate.low <= -1 and slope.estimate.high >= 0):
        return
    one = slope.estimate
    yield (
        f"The best lr goes like clip_norm to the power of {one.value:.2f} (95 %: {one.low:.2f} to {one.high:.2f}), "
        f"{slope.basis_text}. At -1 only their product counts; at 0 each can be tuned alone."
    )


def _tuning_verdicts(effect: SettingEffect) -> Iterator[tuple[str, str]]:
    """What the intervals decide about tuning: each as a clause, and as a sentence with numbers."""
    for small, large, part in ((effect.setting, "lr", BY_SETTING), ("lr", effect.setting, BY_RATE)):
        share = effect.shares.total_share_of_parts(small, part, BY_BOTH)
        if share.verdict_that_value_is_between(most=HARDLY) is Verdict.HOLDS:
            yield (
                f"{large} matters, {small} hardly does",
                f"So {small} hardly matters here, alone or with {large}: {_percent_with_interval_text(share)}; {large} "
                "does.",
            )
    by_both = effect.shares.total_share_of_parts("both", BY_BOTH)
    if by_both.verdict_that_value_is_between(least=TOGETHER) is Verdict.HOLDS:
        yield (
            f"lr and {effect.setting} must be tuned together",
            f"So tune lr and {effect.setting} together: the best value of one depends on the other.",
        )


def _tuning_clauses(effects: Sequence[SettingEffect], table: pd.DataFrame) -> Iterator[str]:
    """The clauses of all effects, each once, with the effects that it is about unless it is about all of the table."""
    titles: dict[str, list[str]] = {}
    several = table[NOISE].nunique() > 1
    for effect in effects:
        for clause, _ in _tuning_verdicts(effect):
            titles.setdefault(clause, []).append(effect.title if several else effect.method)
    every = table.groupby([METHOD, NOISE], dropna=False).ngroups
    for clause, names in titles.items():
        yield clause if len(names) == every else f"for {enumeration_text(names)}, {clause}"


def _percent_with_interval_text(one: IntervalEstimate) -> str:
    return f"{percent_text(one.value)} % ({percent_interval_text(one.low, one.high)})"


NORMALIZED = {"dp_sgd": ("dp_nsgd",), "dp_momentum": (), "clipped_sgd": ("normalized_sgd",)}
"""By the tag of a clipped method whose steps are proportional to gradients: its normalized partners' tags."""

FEWEST, MOST_CLIPS = 3, 6
"""Learning rates that a line needs, and lines that a chart shows: the smallest, the largest, and some between."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CollapseLine:
    """A line of a chart: `points` has columns `step` (lr x clip_norm, or lr), `score`, `low` and `high`."""

    method: str
    chart: str
    label: str
    points: pd.DataFrame
    normalized: bool = False


def score_by_lr_times_clip_exhibit(sweep: Sweep) -> Exhibit | None:
    """A picture per clipped method with a chart per noise multiplier; None without two lines in one."""
    finished = sweep.compared_rows[sweep.compared_rows["state"] == State.FINISHED]
    if not {LR, CLIP} <= set(finished.columns):
        return None
    tags = {run.trial.method: tag_or_path_of_class(run.trial.config.get("trainer", {})) for run in sweep.runs.rows}
    charted: dict[str, list[CollapseLine]] = {}
    for noise, rows in finished.groupby(NOISE, sort=False, dropna=False):
        at = "" if rows[NOISE].isna().all() else f", noise {setting_text(noise)}"
        for method in dict.fromkeys(rows[METHOD]):
            for line in _chart_lines_of_method(rows, str(method), tags, at):
                charted.setdefault(line.chart, []).append(line)
    crossed = {chart: lines for chart, lines in charted.items() if len(lines) > 1}
    if not crossed:
        return None
    methods = dict.fromkeys(lines[0].method for lines in crossed.values())
    return Exhibit(
        key="collapse",
        title="Does only the product count?",
        note="The score against lr x clip_norm, a line per clip norm. Where the lines fall on one curve, only the "
        "product counts, and one axis is enough. Dashed: a normalized method against its lr, the mean over its "
        "regularizers, shaded from the worst to the best of them. Diverged runs are left out.",
        source=RESULTS,
        drawings=tuple(
            charts.draw_charts(
                f"collapse-{place}",
                f"The score of {method_label(method)} against lr x clip_norm, a line per clip norm.",
                *(
                    _lr_times_clip_chart(chart, lines, sweep.score_description, sweep.score_scale)
                    for chart, lines in crossed.items()
                    if lines[0].method == method
                ),
            )
            for place, method in enumerate(methods, start=1)
        ),
        sheets=tuple(
            _lr_times_clip_sheet(chart, lines, sweep.score_description, sweep.score_scale)
            for chart, lines in crossed.items()
        ),
    )


def _chart_lines_of_method(rows: pd.DataFrame, method: str, tags: dict[str, str], at: str) -> Iterator[CollapseLine]:
    """The lines of a clipped method, and those of its normalized partners."""
    if tags[method] not in NORMALIZED:
        return
    make = partial(CollapseLine, method=method, chart=method_label(method) + at)
    points = point_scores(rows[rows[METHOD] == method]).table
    clips = [float(clip) for clip, own in group_rows_by_column(points, CLIP) if own[LR].nunique() >= FEWEST]
    chosen = np.linspace(0, len(clips) - 1, min(MOST_CLIPS, len(clips))).round().astype(int)  # evenly
    for clip in (clips[place] for place in np.unique(chosen)):
        own = points[points[CLIP] == clip]
        steps = own.assign(step=own[LR].astype(float) * clip).groupby("step")
        best = steps["score"].max().reset_index()  # of a method with further settings
        yield make(label=f"clip_norm {setting_text(clip)}", points=best.assign(low=best["score"], high=best["score"]))
    for partner in dict.fromkeys(map(str, rows[METHOD])):
        if not clips or tags[partner] not in NORMALIZED[tags[method]]:
            continue
        own = point_scores(rows[rows[METHOD] == partner]).table
        if len(own) and own[LR].nunique() >= FEWEST:
            over_regularizers = own.assign(step=own[LR].astype(float)).groupby("step")["score"]
            spread = over_regularizers.agg(score="mean", low="min", high="max").reset_index()
            yield make(label=method_label(partner), points=spread, normalized=True)


def _lr_times_clip_chart(title: str, lines: Sequence[CollapseLine], measure: str, scale: ScoreScale) -> Chart:
    def curve_of_line(line: CollapseLine) -> Curve:
        scores = np.vectorize(scale.drawn)(line.points[["score", "low", "high"]].to_numpy(dtype=float))
        return Curve(
            label=line.label,
            x=tuple(map(float, line.points["step"])),
            y=tuple(map(float, scores[:, 0])),
            dashed=line.normalized,
            band=tuple((float(low), float(high)) for _, low, high in scores) if line.normalized else (),
        )

    return Chart(
        title=title,
        x_label="lr x clip_norm; lr of normalized methods",
        y_label=scale.heading(measure),
        curves=tuple(map(curve_of_line, lines)),
        log_x=True,
    )


def _lr_times_clip_sheet(title: str, lines: Sequence[CollapseLine], measure: str, scale: ScoreScale) -> Sheet:
    rows = (
        (
            line.label,
            (setting_text(float(row["step"])), float(row["step"])),
            (scale.text(row["score"]), scale.number(float(row["score"]))),
        )
        for line in lines
        for row in line.points.to_dict("records")
    )
    return Sheet.from_cells(title, ("line", "lr x clip_norm, or lr", scale.heading(measure)), rows)
