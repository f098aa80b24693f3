"""The papers' claims on the scores of a search, each as a criterion on a table with a row per run.

The criteria and their margins are ours: papers say "stable", "close" or "easier" and draw it. `registry` says who makes
each claim and on which tables it is tested. Claims on learning curves are in `learning_curves`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd

from dpsweep.reports.content.formatting import method_label, setting_text
from dpsweep.reports.reproduction.finding import (
    PERCENT,
    ClaimEvidence,
    Margin,
    Quantity,
    weigh,
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
    scores_of_rows,
    weighted_mean_of_ordered_scores,
    weights_of_best,
    weights_of_mean_best,
    weights_of_median,
    weights_of_worst,
)
from dpsweep.reports.statistics.score_grid import (
    BY_BOTH,
    BY_SETTING,
    VarianceShares,
    score_grid,
    variance_shares,
)
from dpsweep.reports.statistics.verdict import (
    IntervalEstimate,
    unknown_estimate,
)

BETTER = Margin(least=0.01, above=0.0, source="ours: the papers write accuracies to a whole or a half point")
ABOVE = Margin(least=0.0, source="the claim itself: it names no size")
CLOSE = Margin(
    least=-0.03, most=0.03, source="ours: a fifth of the 15 points of the axes in Mohapatra et al., Figure 7"
)
NO_WORSE = Margin(most=0.03, source="the same, to one side")
FLAT = Margin(most=0.25, unit=PERCENT, source="ours: a quarter of the variance")
DEPENDS = Margin(least=0.1, above=0.0, source="ours: a tenth of the variance")

FEW = (1, 4)
"""Numbers of random points at which methods are compared."""

FEWEST_RATES = 3
"""Learning rates of the narrowest range over which a gain is told."""

LEARNED = 0.5
"""Share of the table's best score below which DP-SGD has not learned."""


HELPS_LITTLE = Margin(most=0.01, source=BETTER.source)
BEST_CONSTANT = "best_constant"

MOMENTUM = "trainer.momentum"
MODERATE, LARGE = (0.6, 0.7), 0.9
ADAM, WOSM, TUNED = "dpadam", "dpadamwosm", ("dpsgd", "dpmomentum")
DEFAULT = {LR: 0.001, "trainer.beta1": 0.9, "trainer.beta2": 0.999}
PLAIN, AVERAGED, FALLING, BOTH = "DP-SGD", "momentum", "falling clip norm", "momentum and falling clip norm"
"""Yu, Zhang and Chen's names of their methods."""


def evidence_that_regularizer_matters_little(
    table: pd.DataFrame, normalized: str = "dpnsgd", clipped: str = "dpsgd"
) -> ClaimEvidence:
    """The normalized method's r explains little of its scores, the clipped one's c much."""
    quantities = []
    for at, rows in rows_by_noise(table):
        r, c = _variance_shares(rows, normalized, REGULARIZER), _variance_shares(rows, clipped, CLIP)
        quantities += [
            Quantity(name=f"{at} r explains", estimate=_share_of_setting(r), margin=FLAT),
            Quantity(
                name=f"{at} c explains more than r by",
                estimate=_share_of_setting(None if r is None or c is None else _difference(c, r)),
                margin=DEPENDS,
            ),
        ]
    return weigh(quantities)


def evidence_that_normalized_tunes_easier(table: pd.DataFrame, normalized: str, clipped: str) -> ClaimEvidence:
    """A few random points of the normalized method are better."""
    quantities = []
    for at, rows in rows_by_noise(table):
        points = [point_scores(rows_of_method(rows, method)) for method in (normalized, clipped)]
        for count in FEW:
            one, other = (
                weighted_mean_of_ordered_scores(own, partial(weights_of_mean_best, draws=count)) for own in points
            )
            quantities.append(Quantity(name=f"{at} best of {count}:", estimate=(one - other).estimate, margin=BETTER))
    ranges = gains_by_range_of_rates(table, normalized, clipped)
    return weigh(quantities, remark="; ".join(_text_of_gains(ranges, count) for count in FEW) if ranges else "")


@dataclass(frozen=True, kw_only=True)
class RangeGain:
    """The gain of a few random points at a noise multiplier, if both grids' learning rates are from `low` to `high`."""

    noise: float
    tries: int
    low: float
    high: float
    gain: float


def gains_by_range_of_rates(table: pd.DataFrame, normalized: str, clipped: str) -> list[RangeGain]:
    """The gain, by mean scores alone, over every range of at least `FEWEST_RATES` of the grids' learning rates."""
    gains, rates = [], sorted({float(rate) for rate in table[LR]})
    for noise, rows in group_rows_by_column(table, NOISE):
        points = [point_scores(rows_of_method(rows, method)) for method in (normalized, clipped)]
        for first, low in enumerate(rates):
            for high in rates[first + FEWEST_RATES - 1 :]:
                scores = [
                    np.sort(own.means[own.settings[LR].astype(float).between(low, high).to_numpy()]) for own in points
                ]
                for tries in FEW if all(map(len, scores)) else ():
                    one, other = (float(own @ weights_of_mean_best(len(own), tries)) for own in scores)
                    gains.append(RangeGain(noise=float(noise), tries=tries, low=low, high=high, gain=one - other))
    return gains


def _text_of_gains(gains: Sequence[RangeGain], tries: int) -> str:
    """The smallest and the largest gain over all ranges, and in how many of them it is large enough, and negative."""
    own = sorted((one for one in gains if one.tries == tries), key=lambda one: one.gain)
    least, most = (
        f"{BETTER.unit.value_text(one.gain)} (lr {one.low:g} to {one.high:g}, noise {setting_text(one.noise)})"
        for one in (own[0], own[-1])
    )
    reached, negative = sum(one.gain >= BETTER.least for one in own), sum(one.gain < 0 for one in own)
    return (
        f"best of {tries} over the {len(own)} ranges of {FEWEST_RATES} or more learning rates at a noise: from {least} "
        f"to {most}; {reached} reach the margin, {negative} are negative"
    )


def evidence_that_best_scores_are_close(table: pd.DataFrame, methods: Sequence[str]) -> ClaimEvidence:
    """The methods' best scores are nearly the same, where the runs can show a difference."""
    quantities, shows = [], []
    for at, rows in rows_by_noise(table):
        points_of = {method: point_scores(rows_of_method(rows, method)) for method in methods}
        tops = {method: weighted_mean_of_ordered_scores(one, weights_of_best) for method, one in points_of.items()}
        shows.append(any(one.has_significant_differences for one in points_of.values()))
        quantities += [
            Quantity(
                name=f"{at} {method_label(one)} - {method_label(other)}",
                estimate=(tops[one] - tops[other]).estimate,
                margin=CLOSE,
            )
            for one, other in combinations(methods, 2)
        ]
    return weigh(quantities, shows_differences=all(shows))


def evidence_that_few_candidates_beat_others(
    table: pd.DataFrame, tuned: Sequence[str] = TUNED, few: str = ADAM
) -> ClaimEvidence:
    """At equal privacy, the few candidates of a method beat as many random candidates of each other method."""
    quantities = []
    for at, rows in rows_by_noise(table):
        own = point_scores(rows_of_method(rows, few))
        top, draws = weighted_mean_of_ordered_scores(own, weights_of_best), len(own.means)
        quantities += [
            Quantity(
                name=f"{at} above {draws} of {method_label(method)}:",
                estimate=(
                    top
                    - weighted_mean_of_ordered_scores(
                        point_scores(rows_of_method(rows, method)), partial(weights_of_mean_best, draws=draws)
                    )
                ).estimate,
                margin=BETTER,
            )
            for method in tuned
        ]
    return weigh(quantities)


def evidence_that_few_candidates_beat_pruned_others(looks: pd.DataFrame) -> ClaimEvidence:
    """The same after the others lost every learning rate that is the best at no recorded step."""
    kept, told = [rows_of_method(looks, ADAM)], []
    for (at, rows), method in ((group, method) for group in rows_by_noise(looks) for method in TUNED):
        own = rows_of_method(rows, method)
        rates = sorted(rates_that_are_ever_the_best(own))
        kept.append(own[own[LR].astype(float).isin(rates)])
        told.append(f"{at} lr {values_text(rates)} of {method_label(method)}")
    pruned = pd.concat(kept)
    last: pd.DataFrame = pruned[pruned[STEPS] == looks[STEPS].max()]
    found = evidence_that_few_candidates_beat_others(last)
    return ClaimEvidence(parts=found.parts, verdict=found.verdict, remark=f"what pruning leaves: {'; '.join(told)}")


def rates_that_are_ever_the_best(looks: pd.DataFrame) -> set[float]:
    """The learning rates whose best point has the best mean score at some number of steps."""
    by_length = group_rows_by_column(point_scores(looks).table, STEPS)
    return {float(own.iloc[int(own["score"].to_numpy().argmax())][LR]) for _, own in by_length}


def evidence_that_adam_defaults_suffice(table: pd.DataFrame, default: Mapping[str, float] = DEFAULT) -> ClaimEvidence:
    """Adam's defaults are near the best of all candidates."""
    candidates = point_scores(table)
    top = weighted_mean_of_ordered_scores(candidates, weights_of_best)
    at_lr, at_all = (
        candidates.mask_of_points_with_settings(**{LR: default[LR]}),
        candidates.mask_of_points_with_settings(**default),
    )
    losses = {
        "the defaults below the best by": weighted_mean_of_ordered_scores(candidates, weights_of_best, at_all),
        "the worst candidate at the default lr below the best by": weighted_mean_of_ordered_scores(
            candidates, weights_of_worst, at_lr
        ),
    }
    return weigh(
        (Quantity(name=name, estimate=(top - one).estimate, margin=NO_WORSE) for name, one in losses.items()),
        shows_differences=candidates.has_significant_differences,
    )


def evidence_that_no_candidate_is_catastrophic(table: pd.DataFrame, method: str = ADAM) -> ClaimEvidence:
    """The method's worst candidate is clearly better than the best constant predictor, at every noise.

    `BEST_CONSTANT` is a column of the table: the score of the best constant predictor, nan if it is not known.
    """
    constant, quantities, told = float(table[BEST_CONSTANT].iloc[0]), [], []
    for at, rows in rows_by_noise(table.drop(columns=BEST_CONSTANT)):
        points = {str(name): point_scores(own) for name, own in rows.groupby(METHOD, sort=False)}
        worst = weighted_mean_of_ordered_scores(points[method], weights_of_worst)
        quantities.append(
            Quantity(name=f"{at} worst candidate", estimate=partial(_above_constant, worst, constant), margin=BETTER)
        )
        told += [
            f"{at} {int((own.means < constant + BETTER.least).sum())} of {len(own.means)} candidates of "
            f"{method_label(name)}"
            for name, own in points.items()
        ]
    return weigh(
        quantities, remark=f"no better than a constant by {BETTER.unit.value_text(BETTER.least)}: " + "; ".join(told)
    )


def _above_constant(score: ScoreStatistic, constant: float, name: str, level: float) -> IntervalEstimate:
    one = score.estimate(name, level)
    return replace(one, value=one.value - constant, low=one.low - constant, high=one.high - constant)


def evidence_that_second_method_is_no_worse(table: pd.DataFrame, one: str = ADAM, other: str = WOSM) -> ClaimEvidence:
    """The second method's best and median scores are no worse than the first's, for every number of steps."""
    quantities, shows = [], []
    for at, rows in rows_by_noise(table[table[METHOD].isin((one, other))]):
        pooled = point_scores(rows)
        shows.append(pooled.has_significant_differences)
        for length in sorted({int(length) for length in pooled.settings[STEPS]}):
            for name, kind in (("best", weights_of_best), ("median", weights_of_median)):
                first, second = (
                    weighted_mean_of_ordered_scores(
                        pooled, kind, pooled.mask_of_points_with_settings(method=method, steps=length)
                    )
                    for method in (one, other)
                )
                quantities.append(
                    Quantity(name=f"{at} {length} steps, {name}:", estimate=(first - second).estimate, margin=NO_WORSE)
                )
    return weigh(quantities, shows_differences=all(shows))


def evidence_that_momentum_helps_little(table: pd.DataFrame) -> ClaimEvidence:
    """The best score with momentum, whatever its coefficient, is hardly above DP-SGD's, at every noise."""
    quantities = []
    for at, rows in rows_by_noise(table):
        with_momentum, without = (point_scores(rows_of_method(rows, method)) for method in ("dpmomentum", "dpsgd"))
        gain = best_score(with_momentum) - best_score(without)
        quantities.append(Quantity(name=f"{at} gain of momentum:", estimate=gain.estimate, margin=HELPS_LITTLE))
    return weigh(quantities)


def evidence_that_moderate_momentum_is_best(table: pd.DataFrame) -> ClaimEvidence:
    """A moderate momentum coefficient has the best final score, clearly above a large one's."""
    quantities = []
    for at, rows in rows_by_noise(rows_of_method(table, "dpmomentum")):
        pooled = point_scores(rows)
        values = sorted(set(map(float, pooled.settings[MOMENTUM])))
        moderate = tuple(value for value in MODERATE if value in values)
        if not moderate or LARGE not in values:
            continue
        top = best_score(pooled, **{MOMENTUM: moderate})
        quantities += [
            Quantity(
                name=f"{at} moderate above {value:g}:",
                estimate=(top - best_score(pooled, **{MOMENTUM: value})).estimate,
                margin=BETTER if value == LARGE else ABOVE,
            )
            for value in values
            if value not in MODERATE
        ]
    return weigh(quantities)


def evidence_that_large_momentum_starts_fast(table: pd.DataFrame) -> ClaimEvidence:
    """A large momentum coefficient is better than every smaller one after few steps."""
    quantities = []
    for at, rows in rows_by_noise(rows_of_method(table, "dpmomentum")):
        pooled = point_scores(rows)
        values = sorted(set(map(float, pooled.settings[MOMENTUM])))
        quantities += [
            Quantity(
                name=f"{at} {LARGE:g} above {value:g}:",
                estimate=(best_score(pooled, **{MOMENTUM: LARGE}) - best_score(pooled, **{MOMENTUM: value})).estimate,
                margin=BETTER,
            )
            for value in values
            if value < LARGE and LARGE in values
        ]
    return weigh(quantities)


def evidence_that_method_beats_dpsgd(rows: pd.DataFrame, method: str) -> ClaimEvidence:
    """The method's best score is better than DP-SGD's at every noise multiplier at which DP-SGD learned."""
    learned, others = rows_by_whether_dpsgd_learned(rows)
    gains = gains_over_dpsgd_by_noise(learned, method)
    complete = len(gains) == learned[NOISE].nunique()
    return weigh(
        (
            Quantity(name=f"noise {setting_text(noise)}:", estimate=gain.estimate, margin=BETTER)
            for noise, gain in gains.items()
            if complete
        ),
        remark=_text_of_rows_left_out(others),
    )


def evidence_that_few_steps_gain_most(rows: pd.DataFrame) -> ClaimEvidence:
    """The gain of momentum and a falling clip norm is larger with the fewest steps than with the most."""
    learned, others = rows_by_whether_dpsgd_learned(rows)
    gains = gains_over_dpsgd_by_noise(learned, BOTH)
    few, many = min(gains, default=0.0), max(gains, default=0.0)
    told = [f"gain at noise {setting_text(noise)}: {BETTER.unit.value_text(one.value)}" for noise, one in gains.items()]
    return weigh(
        [Quantity(name="with the fewest steps larger by", estimate=(gains[few] - gains[many]).estimate, margin=BETTER)]
        if few < many
        else (),
        remark="; ".join(filter(None, (*told, _text_of_rows_left_out(others)))),
    )


def rows_by_whether_dpsgd_learned(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of the noise multipliers at which DP-SGD's best score is `LEARNED` of the table's, and the others.

    To be better than a network that has not learned says nothing on a method.
    """
    best = scores_of_rows(rows).max()
    plain = rows.assign(score=scores_of_rows(rows))[rows[METHOD] == PLAIN].groupby(NOISE)["score"].max()
    known: pd.Series[bool] = rows[NOISE].isin(plain.index[plain >= LEARNED * best])
    return rows[known], rows[~known]


def _text_of_rows_left_out(rows: pd.DataFrame) -> str:
    noises = [float(noise) for noise, _ in group_rows_by_column(rows, NOISE)]
    return f"left out, since DP-SGD has not learned there: noise {values_text(noises)}" if noises else ""


def gains_over_dpsgd_by_noise(rows: pd.DataFrame, method: str) -> dict[float, ScoreStatistic]:
    """How much the method's best score is above DP-SGD's at each noise multiplier at which both ran."""
    gains = {}
    for noise, own in group_rows_by_column(rows, NOISE):
        pooled = point_scores(own[own[METHOD].isin((PLAIN, method))])
        if {PLAIN, method} <= set(pooled.settings[METHOD]):
            gains[float(noise)] = best_score(pooled, method=method) - best_score(pooled, method=PLAIN)
    return gains


def rows_by_noise(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows at each noise multiplier, and how a quantity's name begins there."""
    return [(f"noise {setting_text(noise)}:", rows) for noise, rows in group_rows_by_column(table, NOISE)]


def best_score(pooled: PointScores, **settings: object) -> ScoreStatistic:
    """The best mean score of the points with these settings."""
    return weighted_mean_of_ordered_scores(pooled, weights_of_best, pooled.mask_of_points_with_settings(**settings))


def _variance_shares(rows: pd.DataFrame, method: str, key: str) -> VarianceShares | None:
    grid = score_grid(rows_of_method(rows, method), key)
    return None if grid is None else variance_shares(grid)


def _difference(one: VarianceShares, other: VarianceShares) -> VarianceShares:
    return VarianceShares(values=np.subtract(one.values, other.values), draws=one.draws - other.draws)


def _share_of_setting(shares: VarianceShares | None) -> partial[IntervalEstimate]:
    """The estimate of what a setting explains of a grid's variance, alone and with lr, by name and level."""
    if shares is None:
        return partial(named_estimate, unknown_estimate(""))
    return partial(_share_at_level, shares)


def _share_at_level(shares: VarianceShares, name: str, level: float) -> IntervalEstimate:
    return shares.total_share_of_parts(name, BY_SETTING, BY_BOTH, level=level)


def named_estimate(one: IntervalEstimate, name: str, level: float) -> IntervalEstimate:
    """An estimate that is made already, whatever the level, with a name."""
    return IntervalEstimate(name=name, value=one.value, low=one.low, high=one.high)


def values_text(values: Sequence[float]) -> str:
    """Numbers for readers."""
    return ", ".join(f"{value:g}" for value in values) or "none"
