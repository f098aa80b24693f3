"""The papers' claims on the scores of a search, each as a criterion on a table with a row per run.

The criteria are ours: papers say "stable", "close" or "easier" and draw it. Claims on learning curves are in
`learning_curves`; those that one figure alone makes are in its file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd

from dpsweep.reports.content.formatting import enumeration_text, method_label, setting_text
from dpsweep.reports.reproduction.finding import (
    Finding,
    estimate_text_as_number,
    estimate_text_in_percent,
    estimate_text_in_percentage_points,
    joint_verdict_of_parts,
    judged_parts_of_estimates_in_range,
    percentage_points_text,
    text_listing_estimates,
)
from dpsweep.reports.statistics.point_scores import (
    CLIP,
    LR,
    METHOD,
    NOISE,
    REGULARIZER,
    STEPS,
    PointScores,
    ScoreStatistic,
    group_rows_by_column,
    point_scores,
    rows_of_method,
    weighted_mean_of_ordered_scores,
    weights_of_best,
    weights_of_mean_best,
    weights_of_median,
    weights_of_worst,
)
from dpsweep.reports.statistics.score_grid import (
    BY_BOTH,
    BY_SETTING,
    CLEAR,
    FEWEST_ROWS,
    VarianceShares,
    score_grid,
    slope_of_best_rate,
    variance_shares,
)
from dpsweep.reports.statistics.verdict import (
    IntervalEstimate,
    Verdict,
    confidence_of_each_interval,
    joint_verdict,
    unknown_estimate,
)

CLOSE = 0.03
"""Largest difference of two scores that counts as close."""

APART = 0.01
"""Smallest difference of two scores that counts as better."""

FLAT = 0.25
"""Largest share of a grid's variance that r may explain, alone and with lr, in a method that is stable in r."""

WIDER = 0.1
"""Smallest difference of two shares of variance that counts as larger."""

FEW = (1, 4)
"""Numbers of random points at which methods are compared."""

SLOPES = (-1.5, -0.5)
"""Range of the exponent e in lr ~ clip_norm^e that counts as inverse proportion (e = -1)."""

READ_FROM = (
    f"e is the median slope over all pairs of usable clip norms: those whose best score is inside the grid and beats "
    f"the ends and the median of its row, and the best constant predictor, by {CLEAR:g} standard errors; undecided "
    f"with fewer than {FEWEST_ROWS} of them, if the smaller and the larger ones have different slopes, or if one of "
    "them decides"
)

MOMENTUM = "trainer.momentum"
MODERATE, LARGE = (0.6, 0.7), 0.9


def finding_that_regularizer_matters_little(
    table: pd.DataFrame, normalized: str = "dpnsgd", clipped: str = "dpsgd"
) -> Finding:
    """The normalized method's r explains little of its scores, the clipped one's c much."""
    noises = group_rows_by_column(table, NOISE)
    level = confidence_of_each_interval(2 * len(noises))
    flat, differ = [], []
    for noise, rows in noises:
        at = f"noise {setting_text(noise)}:"
        r, c = (
            _variance_shares_of_method(rows, normalized, REGULARIZER),
            _variance_shares_of_method(rows, clipped, CLIP),
        )
        flat.append(_variance_share_explained_by_setting(r, f"{at} r explains", level))
        differ.append(_excess_of_variance_share(c, r, f"{at} c explains more than r by", level))
    parts = (
        *judged_parts_of_estimates_in_range(flat, estimate_text_in_percent, most=FLAT),
        *judged_parts_of_estimates_in_range(differ, estimate_text_in_percentage_points, least=WIDER),
    )
    return Finding(
        topic=f"{method_label(normalized)} is stable in r, {method_label(clipped)} depends on c",
        claim=f"{method_label(normalized)} is rather stable in its regularizer r, while {method_label(clipped)} "
        "depends on learning rate and clip norm c.",
        criterion=f"r, alone and together with lr, explains at most {FLAT:.0%} of the variance over the grid, and c "
        f"at least {percentage_points_text(WIDER)} more",
        numbers="; ".join(
            (
                text_listing_estimates(flat, estimate_text_in_percent),
                text_listing_estimates(differ, estimate_text_in_percentage_points),
            )
        ),
        verdict=joint_verdict_of_parts(parts),
        estimates=(*flat, *differ),
        parts=parts,
    )


def finding_that_normalized_tunes_easier(table: pd.DataFrame, normalized: str, clipped: str) -> Finding:
    """A few random points of the normalized method are better."""
    noises = group_rows_by_column(table, NOISE)
    level = confidence_of_each_interval(len(noises) * len(FEW))
    gains = [
        (
            _mean_best_of_random_points(rows, normalized, count) - _mean_best_of_random_points(rows, clipped, count)
        ).estimate(f"noise {setting_text(noise)}, best of {count}:", level)
        for noise, rows in noises
        for count in FEW
    ]
    parts = judged_parts_of_estimates_in_range(gains, estimate_text_in_percentage_points, least=APART)
    return Finding(
        topic=f"{method_label(normalized)} is easier to tune than {method_label(clipped)}",
        claim=f"{method_label(normalized)} is stable in regularizer and learning rate, so that it could be easier to "
        f"tune than {method_label(clipped)}.",
        criterion=f"the mean best score of {' and of '.join(map(str, FEW))} random points is at least "
        f"{percentage_points_text(APART)} above that of {method_label(clipped)}, in the mean over all draws of the "
        "grid's points",
        numbers=text_listing_estimates(gains, estimate_text_in_percentage_points),
        verdict=joint_verdict_of_parts(parts),
        estimates=tuple(gains),
        parts=parts,
    )


def finding_that_best_scores_are_close(table: pd.DataFrame, methods: Sequence[str], claim: str) -> Finding:
    """The methods' best scores are nearly the same, where the runs can show a difference."""
    noises, pairs = group_rows_by_column(table, NOISE), list(combinations(methods, 2))
    level = confidence_of_each_interval(len(noises) * len(pairs))
    gaps, verdicts = [], []
    for noise, rows in noises:
        points_of = {method: point_scores(rows_of_method(rows, method)) for method in methods}
        tops = {method: weighted_mean_of_ordered_scores(one, weights_of_best) for method, one in points_of.items()}
        own = [
            (tops[one] - tops[other]).estimate(
                f"noise {setting_text(noise)}: {method_label(one)} - {method_label(other)}", level
            )
            for one, other in pairs
        ]
        gaps += own
        verdicts.append(
            verdict_if_distinguishable(
                list(points_of.values()), joint_verdict(gap.verdict_that_value_is_between(-CLOSE, CLOSE) for gap in own)
            )
        )
    return Finding(
        topic=f"The best of {enumeration_text([method_label(method) for method in methods])} are close",
        claim=claim,
        criterion=(
            f"best scores within {percentage_points_text(CLOSE)} of each other, on grids whose points differ by more "
            "than noise"
        ),
        numbers=text_listing_estimates(gaps, estimate_text_in_percentage_points),
        verdict=joint_verdict(verdicts),
        estimates=tuple(gaps),
        parts=judged_parts_of_estimates_in_range(gaps, estimate_text_in_percentage_points, -CLOSE, CLOSE),
    )


def finding_that_few_candidates_beat_others(table: pd.DataFrame, tuned: Sequence[str], few: str) -> Finding:
    """At equal privacy, the method with few candidates beats as many random candidates of each other method."""
    points_of = {method: point_scores(rows_of_method(table, method)) for method in (few, *tuned)}
    count, level = len(points_of[few].means), confidence_of_each_interval(len(tuned))
    top = weighted_mean_of_ordered_scores(points_of[few], weights_of_best)
    gains = [
        (top - weighted_mean_of_ordered_scores(points_of[method], partial(weights_of_mean_best, draws=count))).estimate(
            f"above {count} of {method_label(method)}:", level
        )
        for method in tuned
    ]
    parts = judged_parts_of_estimates_in_range(gains, estimate_text_in_percentage_points, least=APART)
    return Finding(
        topic=(
            f"A few candidates of {method_label(few)} beat as many of "
            f"{enumeration_text([method_label(one) for one in tuned])}"
        ),
        claim=f"For the same privacy, {method_label(few)} with its {count} candidates beats as many candidates "
        "of the others, taken at random.",
        criterion=(
            f"its best score is at least {percentage_points_text(APART)} above the others' mean best score over all "
            "such draws"
        ),
        numbers=text_listing_estimates(gains, estimate_text_in_percentage_points),
        verdict=joint_verdict_of_parts(parts),
        estimates=tuple(gains),
        parts=parts,
    )


def verdict_if_distinguishable(groups: Sequence[PointScores], verdict: Verdict) -> Verdict:
    """The verdict, but undecided instead of `holds` if in no group the points differ by more than their errors.

    A search that shows no difference at all cannot show that there is none between methods.
    """
    return (
        verdict
        if verdict is Verdict.REFUTED or any(group.has_significant_differences for group in groups)
        else Verdict.UNDECIDED
    )


def finding_that_adam_defaults_suffice(table: pd.DataFrame, default: Mapping[str, float]) -> Finding:
    """Adam's defaults are near the best of all candidates."""
    candidates = point_scores(table)
    at_lr, at_all = (
        candidates.mask_of_points_with_settings(**{LR: default[LR]}),
        candidates.mask_of_points_with_settings(**default),
    )
    top, level = weighted_mean_of_ordered_scores(candidates, weights_of_best), confidence_of_each_interval(2)
    losses = (
        (top - weighted_mean_of_ordered_scores(candidates, weights_of_best, at_all)).estimate(
            "the defaults below the best by", level
        ),
        (top - weighted_mean_of_ordered_scores(candidates, weights_of_worst, at_lr)).estimate(
            "the worst candidate at the default lr below the best by", level
        ),
    )
    parts = judged_parts_of_estimates_in_range(losses, estimate_text_in_percentage_points, most=CLOSE)
    return Finding(
        topic="Adam's defaults are near the best of DP-Adam's candidates",
        claim="Adam's usual learning rate is close to the best whatever the decay rates, and so are all its defaults.",
        criterion=f"the defaults, and the worst candidate at lr {default[LR]:g}, "
        f"within {percentage_points_text(CLOSE)} of the best, among candidates that differ by more than noise",
        numbers=text_listing_estimates(losses, estimate_text_in_percentage_points),
        verdict=verdict_if_distinguishable([candidates], joint_verdict_of_parts(parts)),
        estimates=losses,
        parts=parts,
    )


def finding_that_second_method_is_no_worse(table: pd.DataFrame, one: str, other: str) -> Finding:
    """The second method's best and median scores are no worse than the first's, for every number of steps."""
    pooled = point_scores(table[table[METHOD].isin((one, other))])
    lengths = sorted({int(length) for length in pooled.settings[STEPS]})
    level = confidence_of_each_interval(2 * len(lengths))
    losses = [
        (
            weighted_mean_of_ordered_scores(pooled, kind, pooled.mask_of_points_with_settings(method=one, steps=length))
            - weighted_mean_of_ordered_scores(
                pooled, kind, pooled.mask_of_points_with_settings(method=other, steps=length)
            )
        ).estimate(f"{length} steps, {name}:", level)
        for length in lengths
        for name, kind in (("best", weights_of_best), ("median", weights_of_median))
    ]
    parts = judged_parts_of_estimates_in_range(losses, estimate_text_in_percentage_points, most=CLOSE)
    return Finding(
        topic=f"{method_label(other)} runs alongside {method_label(one)}",
        claim=f"{method_label(other)} runs alongside {method_label(one)} throughout training, by its best and by its "
        "median candidate.",
        criterion=f"at most {percentage_points_text(CLOSE)} below at every length, among candidates that differ by "
        "more than noise; to be above is no objection",
        numbers=(
            f"{method_label(one)} - {method_label(other)}: "
            f"{text_listing_estimates(losses, estimate_text_in_percentage_points)}"
        ),
        verdict=verdict_if_distinguishable([pooled], joint_verdict_of_parts(parts)),
        estimates=tuple(losses),
        parts=parts,
    )


def finding_that_many_rates_are_prunable(table: pd.DataFrame) -> Finding:
    """Many learning rates are never nearly the best and could be left out of the grid."""
    pooled = point_scores(table)
    rates = sorted({float(rate) for rate in pooled.settings[LR]})
    lengths = sorted({int(length) for length in pooled.settings[STEPS]})
    level = confidence_of_each_interval(len(rates))
    losses = {rate: [*_deficits_of_rate(pooled, rate, lengths, level)] for rate in rates}
    verdicts = {
        rate: joint_verdict(one.verdict_that_value_is_between(least=APART) for one in own)
        for rate, own in losses.items()
    }
    never = [rate for rate in rates if verdicts[rate] is Verdict.HOLDS]
    needed = [rate for rate in rates if verdicts[rate] is Verdict.REFUTED]
    undecided = len(rates) - len(never) - len(needed)
    return Finding(
        topic="Half of DP-SGD's learning rates can be left out",
        claim="Some learning rates of DP-SGD's grid perform poorly throughout and can be pruned.",
        criterion=f"at least half of the learning rates are, by their best clip norm, at least "
        f"{percentage_points_text(APART)} below the best of all at every length",
        numbers=f"{len(never)} of {len(rates)} are: {_rates_text(never)}; {len(needed)} are not: "
        f"{_rates_text(needed)}; {undecided} cannot be told",
        verdict=_verdict_that_half_is_prunable(len(rates), len(never), undecided),
        estimates=tuple(one for own in losses.values() for one in own),
        parts=tuple(
            part
            for own in losses.values()
            for part in judged_parts_of_estimates_in_range(own, estimate_text_in_percentage_points, least=APART)
        ),
    )


def win_counts_of_rate_and_clip_norm_pairs(table: pd.DataFrame) -> dict[tuple[float, float], int]:
    """How often each (lr, clip norm) has the best mean score for a number of steps; the first among equals counts."""
    pooled = point_scores(table)
    counts = {(float(lr), float(clip)): 0 for lr, clip in zip(table[LR], table[CLIP], strict=True)}
    for _, own in group_rows_by_column(pooled.table, STEPS):
        top = own.iloc[int(own["score"].to_numpy().argmax())]
        counts[float(top[LR]), float(top[CLIP])] += 1
    return counts


def finding_on_slopes(
    topic: str,
    claim: str,
    between: tuple[float, float],
    tables: Mapping[str, pd.DataFrame],
    method: str,
    best_constant: float | None,
) -> Finding:
    """Whether the method's slope is between these numbers in each of the tables, which have the words before it."""
    level = confidence_of_each_interval(len(tables))
    grids = [score_grid(rows_of_method(rows, method), CLIP) for rows in tables.values()]
    slopes = [slope_of_best_rate(grid, best_constant, level) for grid in grids]
    estimates = tuple(one.estimate for one in slopes)
    texts = [
        f"no e: {one.reason}" if one.reason else f"{estimate_text_as_number(one.estimate)}, {one.basis_text}"
        for one in slopes
    ]
    judged = judged_parts_of_estimates_in_range(estimates, estimate_text_as_number, *between)
    parts = tuple(replace(part, text=text) for part, text in zip(judged, texts, strict=True))
    return Finding(
        topic=topic,
        claim=claim,
        criterion=f"best lr ~ c^e with e from {between[0]:g} to {between[1]:g}; {READ_FROM}",
        numbers="; ".join(f"{at}{text}" for at, text in zip(tables, texts, strict=True)),
        verdict=joint_verdict_of_parts(parts),
        estimates=estimates,
        parts=parts,
    )


def finding_that_moderate_momentum_is_best(table: pd.DataFrame) -> Finding:
    """A moderate momentum coefficient has the best final score; a large one only starts well."""
    pooled, length = point_scores(table), max(table[STEPS])
    tops = _best_score_by_momentum(pooled, length)
    moderate = [value for value in MODERATE if value in tops]
    others = [value for value in tops if value not in MODERATE]
    level = confidence_of_each_interval(len(others))
    top = _best_score_among_momenta(pooled, length, *moderate)
    leads = {value: (top - tops[value]).estimate(f"moderate above {value:g}:", level) for value in others}
    parts = tuple(
        part
        for value, one in leads.items()
        if LARGE in leads and moderate
        for part in judged_parts_of_estimates_in_range(
            (one,), estimate_text_in_percentage_points, least=APART if value == LARGE else 0.0
        )
    )
    return Finding(
        topic="Momentum 0.6 or 0.7 is the best in the end, 0.9 is worse",
        claim="The best accuracy in the end is that of momentum 0.6 or 0.7; 0.9 ends with a relatively bad one.",
        criterion="after the most steps, the better of 0.6 and 0.7 is above every other coefficient, and at least "
        f"{percentage_points_text(APART)} above 0.9",
        numbers=f"after {length} steps: {text_listing_estimates(leads.values(), estimate_text_in_percentage_points)}",
        verdict=joint_verdict_of_parts(parts),
        estimates=tuple(leads.values()),
        parts=parts,
    )


def finding_that_large_momentum_starts_fast(table: pd.DataFrame) -> Finding:
    """A large momentum coefficient is better after few steps."""
    length = min(table[STEPS])
    tops = _best_score_by_momentum(point_scores(table), length)
    others = [value for value in tops if value != LARGE]
    level = confidence_of_each_interval(len(others))
    leads = [
        (tops[LARGE] - tops[value]).estimate(f"{LARGE:g} above {value:g}:", level) for value in others if LARGE in tops
    ]
    parts = judged_parts_of_estimates_in_range(leads, estimate_text_in_percentage_points, least=APART)
    return Finding(
        topic="Momentum 0.9 is the fastest in the beginning",
        claim="With momentum 0.9 the accuracy increases faster in the beginning.",
        criterion=(
            f"after the fewest steps 0.9 is at least {percentage_points_text(APART)} above every other coefficient"
        ),
        numbers=f"after {length} steps: {text_listing_estimates(leads, estimate_text_in_percentage_points)}",
        verdict=joint_verdict_of_parts(parts),
        estimates=tuple(leads),
        parts=parts,
    )


def _mean_best_of_random_points(rows: pd.DataFrame, method: str, count: int) -> ScoreStatistic:
    return weighted_mean_of_ordered_scores(
        point_scores(rows_of_method(rows, method)), partial(weights_of_mean_best, draws=count)
    )


def _variance_shares_of_method(rows: pd.DataFrame, method: str, key: str) -> VarianceShares | None:
    grid = score_grid(rows_of_method(rows, method), key)
    return None if grid is None else variance_shares(grid)


def _variance_share_explained_by_setting(shares: VarianceShares | None, name: str, level: float) -> IntervalEstimate:
    if shares is None:
        return unknown_estimate(name)
    return shares.total_share_of_parts(name, BY_SETTING, BY_BOTH, level=level)


def _excess_of_variance_share(
    one: VarianceShares | None, other: VarianceShares | None, name: str, level: float
) -> IntervalEstimate:
    """How much more of its grid's variance the first method's setting explains."""
    if one is None or other is None:
        return unknown_estimate(name)
    difference = VarianceShares(values=np.subtract(one.values, other.values), draws=one.draws - other.draws)
    return difference.total_share_of_parts(name, BY_SETTING, BY_BOTH, level=level)


def _deficits_of_rate(pooled: PointScores, rate: float, lengths: list[int], level: float) -> Iterator[IntervalEstimate]:
    """How much the best score of a learning rate is below that of the others, at each length."""
    own = pooled.mask_of_points_with_settings(**{LR: rate})
    for length in lengths:
        here = pooled.mask_of_points_with_settings(steps=length)
        mine, others = (
            weighted_mean_of_ordered_scores(pooled, weights_of_best, here & chosen) for chosen in (own, ~own)
        )
        yield (others - mine).estimate(f"lr {rate:g}, {length} steps:", level)


def _verdict_that_half_is_prunable(rates: int, never: int, undecided: int) -> Verdict:
    if 2 * never >= rates:
        return Verdict.HOLDS
    return Verdict.UNDECIDED if 2 * (never + undecided) >= rates else Verdict.REFUTED


def _rates_text(values: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in values) or "none"


def _best_score_by_momentum(pooled: PointScores, length: int) -> dict[float, ScoreStatistic]:
    """The best score of each momentum coefficient after so many steps; errors are pooled over all lengths."""
    values = sorted(set(pooled.settings[MOMENTUM][pooled.mask_of_points_with_settings(steps=length)]))
    return {float(value): _best_score_among_momenta(pooled, length, value) for value in values}


def _best_score_among_momenta(pooled: PointScores, length: int, *values: float) -> ScoreStatistic:
    """The best score with one of these coefficients after so many steps."""
    chosen = pooled.mask_of_points_with_settings(**{"steps": length, MOMENTUM: values})
    return weighted_mean_of_ordered_scores(pooled, weights_of_best, chosen)
