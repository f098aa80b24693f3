"""Yu, Zhang, Chen 2019, Figures 2 and 4: DP-SGD with momentum, a falling clip norm, both and neither, at one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

from dpsweep.reports.content.formatting import setting_text
from dpsweep.reports.figures.charts import Chart, Curve, draw_charts
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.reproduction.claims import APART
from dpsweep.reports.reproduction.finding import (
    Finding,
    Reproduction,
    Trained,
    estimate_text_in_percentage_points,
    joint_verdict_of_parts,
    judged_parts_of_estimates_in_range,
    percentage_points_text,
    text_listing_estimates,
)
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.reproduction.training import ACCOUNT, sheet_of_prices_by_accountant
from dpsweep.reports.statistics.point_scores import (
    METHOD,
    NOISE,
    STEPS,
    ScoreStatistic,
    point_scores,
    scores_of_rows,
    weighted_mean_of_ordered_scores,
)
from dpsweep.reports.statistics.point_scores import weights_of_best as highest
from dpsweep.reports.statistics.verdict import IntervalEstimate, confidence_of_each_interval

LEAST = "clip_schedule.least"
PLAIN, MOMENTUM, FALLING, BOTH = "DP-SGD", "momentum", "falling clip norm", "momentum and falling clip norm"
TOPIC = "Momentum and a falling clip norm beat DP-SGD"
"""The claim of two figures."""

_METHODS = {
    ("dpsgd", False): PLAIN,
    ("dpmomentum", False): MOMENTUM,
    ("dpsgd", True): FALLING,
    ("dpmomentum", True): BOTH,
}

Scores = Mapping[float, ScoreStatistic]
"""A method's best score at each noise multiplier."""

OUR_LENGTHS = "The noise multipliers, and with them the numbers of steps that a budget allows, are ours."
OUR_FALL = (
    "The clip norm falls over the whole run; in the paper, over the steps that a constant clip norm would pay for."
)
COVERTYPE = (
    "A sixth of Covertype's records, a sample that a package carries, in batches of the paper's size; scores are noisy "
    "counts of held-out private records, since the data set has no test set."
)
EACH_LENGTH = "Each number of steps is a separate run, at the noise multiplier for which the budget allows these steps."


def reproduction_of_figure_2(results: SearchResults) -> Reproduction:
    """One curve per method."""
    rows = table_with_method_names_of_figure(results)
    return Reproduction(
        title="Momentum and a clip norm that falls",
        source="Yu, Zhang, Chen 2019, Figure 2",
        drawings=(draw_scores_over_steps(rows, results.quality),),
        findings=(
            finding_that_methods_beat_dpsgd(
                rows, [BOTH], "DP-SGD with momentum and a clip norm that falls is better than DP-SGD."
            ),
            finding_that_methods_beat_dpsgd(
                rows,
                [MOMENTUM, FALLING],
                "Either of the two alone is better than DP-SGD.",
                "Momentum alone, and a falling clip norm alone, beat DP-SGD",
            ),
            finding_that_few_steps_gain_most(rows),
        ),
        sheets=(sheet_of_prices_by_accountant(results),),
        notes=(EACH_LENGTH, ACCOUNT),
        differences=(OUR_LENGTHS, OUR_FALL),
    )


def reproduction_of_figure_4(
    results: SearchResults, *, data: str, other: str, differences: tuple[str, ...]
) -> Reproduction:
    """One curve per method, at a smaller budget, for replaced records; `other` names the figure's other panel."""
    rows = table_with_method_names_of_figure(results)
    return Reproduction(
        title="A smaller budget, for records that are replaced",
        source=f"Yu, Zhang, Chen 2019, Figure 4, {data}",
        drawings=(draw_scores_over_steps(rows, results.quality),),
        findings=(
            finding_that_methods_beat_dpsgd(
                rows, [BOTH], "The amended DP-SGD is better than DP-SGD in the more restricted setting."
            ),
        ),
        sheets=(sheet_of_prices_by_accountant(results),),
        notes=(EACH_LENGTH, f"The figure's other panel, {other}", ACCOUNT),
        differences=differences,
    )


def table_with_method_names_of_figure(results: SearchResults) -> pd.DataFrame:
    """The search's table with the figure's names of methods."""
    table = results.table
    kinds = zip(table[METHOD], table[LEAST].astype(float) < 1, strict=True)
    return table.assign(method=[_METHODS[method, falls] for method, falls in kinds])


def draw_scores_over_steps(rows: pd.DataFrame, quality: str) -> Drawing:
    """Scores over the number of steps that the budget allows, a curve per method."""
    present = [method for method in _METHODS.values() if (rows[METHOD] == method).any()]
    return draw_charts(
        "figure",
        "The score over the number of steps that one run's budget allows, a curve per method.",
        (
            Chart(
                title="Until the budget is spent",
                x_label="steps",
                y_label=quality,
                curves=tuple(_mean_score_curve(rows[rows[METHOD] == method], method) for method in present),
                log_x=True,
            ),
        ),
    )


def best_scores_by_noise(rows: pd.DataFrame, method: str) -> Scores:
    """The method's best score at each noise multiplier, ascending; errors are pooled over all runs."""
    pooled = point_scores(rows)
    noises = sorted(set(pooled.settings[NOISE][pooled.mask_of_points_with_settings(method=method)]))
    return {
        float(noise): weighted_mean_of_ordered_scores(
            pooled, highest, pooled.mask_of_points_with_settings(method=method, noise_multiplier=noise)
        )
        for noise in noises
    }


def gains_over_dpsgd_by_noise(rows: pd.DataFrame, method: str, level: float) -> dict[float, IntervalEstimate]:
    """How much the method's best score is above DP-SGD's at each noise multiplier."""
    plain, own = best_scores_by_noise(rows, PLAIN), best_scores_by_noise(rows, method)
    return {
        noise: (own[noise] - score).estimate(f"{method}, noise {setting_text(noise)}:", level)
        for noise, score in plain.items()
        if noise in own
    }


def finding_that_methods_beat_dpsgd(
    rows: pd.DataFrame, methods: Sequence[str], claim: str, topic: str = TOPIC
) -> Finding:
    """Each of the methods has a better score than DP-SGD at every noise multiplier."""
    noises = best_scores_by_noise(rows, PLAIN)
    level = confidence_of_each_interval(len(methods) * len(noises))
    found = [one for method in methods for one in gains_over_dpsgd_by_noise(rows, method, level).values()]
    complete = len(found) == len(methods) * len(noises)
    parts = judged_parts_of_estimates_in_range(
        found if complete else (), estimate_text_in_percentage_points, least=APART
    )
    return Finding(
        topic=topic,
        claim=claim,
        criterion=f"at every noise multiplier the score is at least {percentage_points_text(APART)} above DP-SGD's",
        numbers=f"above DP-SGD: {text_listing_estimates(found, estimate_text_in_percentage_points)}",
        verdict=joint_verdict_of_parts(parts),
        estimates=tuple(found),
        parts=parts,
    )


def finding_that_few_steps_gain_most(rows: pd.DataFrame) -> Finding:
    """The advantage over DP-SGD is larger for smaller numbers of steps."""
    plain, both = best_scores_by_noise(rows, PLAIN), best_scores_by_noise(rows, BOTH)
    leads = {noise: both[noise] - score for noise, score in plain.items() if noise in both}
    few, many = min(leads, default=0.0), max(leads, default=0.0)
    estimates = [gain.estimate(f"gain at noise {setting_text(noise)}:") for noise, gain in leads.items()]
    if few < many:
        estimates.append((leads[few] - leads[many]).estimate("with the fewest steps larger by"))
    parts = judged_parts_of_estimates_in_range(
        estimates[-1:] if few < many else (), estimate_text_in_percentage_points, least=APART
    )
    return Finding(
        topic="The gain of momentum and a falling clip norm is largest for few steps",
        claim="The advantage becomes larger when the budget, the number of steps, is more constrained.",
        criterion="with the fewest steps, which is with the least noise, the amended method's gain over DP-SGD is at "
        f"least {percentage_points_text(APART)} larger than with the most",
        numbers=text_listing_estimates(estimates, estimate_text_in_percentage_points),
        verdict=joint_verdict_of_parts(parts),
        estimates=tuple(estimates),
        parts=parts,
    )


def _mean_score_curve(rows: pd.DataFrame, method: str) -> Curve:
    means = rows.assign(score=scores_of_rows(rows)).groupby(STEPS)["score"].mean().dropna().sort_index()
    return Curve(label=method, x=tuple(map(float, means.index)), y=tuple(means))


FIGURES = {
    "d_fig2": Trained(make=reproduction_of_figure_2),
    "d_fig4": Trained(
        make=partial(
            reproduction_of_figure_4,
            data="Covertype",
            other="MNIST, is `d_fig4_mnist`.",
            differences=(OUR_LENGTHS, COVERTYPE),
        )
    ),
    "d_fig4_mnist": Trained(
        make=partial(
            reproduction_of_figure_4, data="MNIST", other="Covertype, is `d_fig4`.", differences=(OUR_LENGTHS,)
        )
    ),
}
