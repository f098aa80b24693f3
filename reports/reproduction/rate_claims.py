"""Claims on learning rates, noise and batches: the best rate against clip norm and noise, and rates to leave out.

Like `claims`, each is a criterion on a table with a row per run; `registry` says who makes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd

from dpsweep.reports.content.formatting import setting_text
from dpsweep.reports.reproduction.claims import (
    BEST_CONSTANT,
    BETTER,
    CLOSE,
    best_score,
    named_estimate,
    rows_by_noise,
    values_text,
)
from dpsweep.reports.reproduction.finding import NUMBER, ClaimEvidence, Margin, Quantity, weigh
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.statistics.point_scores import (
    CLIP,
    LR,
    NOISE,
    REGULARIZER,
    STEPS,
    PointScores,
    group_rows_by_column,
    point_scores,
    rows_of_method,
    weighted_mean_of_ordered_scores,
    weights_of_best,
)
from dpsweep.reports.statistics.score_grid import CLEAR, FEWEST_ROWS, score_grid, slope_of_best_rate
from dpsweep.reports.statistics.verdict import (
    Verdict,
    confidence_of_each_interval,
    joint_verdict,
    verdict_on_direction_and_margin,
)

INVERSE = Margin(
    least=-1.5,
    most=-0.5,
    above=-np.inf,
    below=0.0,
    unit=NUMBER,
    source="Mohapatra et al., Theorem 5.1, says -1; the range is what is nearer to it than to 0 or -2",
)
INVERSE_TO_NOISE = replace(
    INVERSE, source="Yang et al., Theorems 3.2 and 3.4, say -1; the range is what is nearer to it than to 0 or -2"
)
FREE = Margin(least=-0.5, most=0.5, unit=NUMBER, source="ours: what is nearer to 0 than to 1 or -1")

READ_FROM = (
    "e is the median slope over all pairs of usable {rows}: those whose best score is inside the grid and beats "
    f"the ends and the median of its row, and the best constant predictor, by {CLEAR:g} standard errors; undecided "
    f"with fewer than {FEWEST_ROWS} of them, if the smaller and the larger ones have different slopes, or if one of "
    "them decides"
)
"""What e is, for rows of this name."""

ROWS = {CLIP: "clip norm", NOISE: "noise multiplier"}
"""What the rows of a slope's grid are, by key."""

BATCH, NOISE_OF_MEAN = "sampler.batch_size", "noise_of_mean"


def evidence_on_rate_by_clip_norm(table: pd.DataFrame, method: str, margin: Margin) -> ClaimEvidence:
    """The exponent e of best lr ~ c^e is in the margin's range, at every noise.

    `BEST_CONSTANT` is a column of the table: the score of the best constant predictor, nan if it is not known.
    """
    return _evidence_on_best_rate(table, rows_by_noise(rows_of_method(table, method)), CLIP, margin)


def evidence_on_rate_by_noise(table: pd.DataFrame, method: str, key: str, margin: Margin) -> ClaimEvidence:
    """The exponent e of best lr ~ noise^e is in the margin's range, at every value of the method's bound, `key`.

    `BEST_CONSTANT` is a column of the table, as for the exponent of the clip norm.
    """
    rows = rows_of_method(table, method)
    letter = {CLIP: "c", REGULARIZER: "r"}[key]
    groups = [(f"{letter} = {setting_text(value)}:", own) for value, own in group_rows_by_column(rows, key)]
    return _evidence_on_best_rate(table, groups, NOISE, margin)


def _evidence_on_best_rate(
    table: pd.DataFrame, groups: Sequence[tuple[str, pd.DataFrame]], key: str, margin: Margin
) -> ClaimEvidence:
    known, level = float(table[BEST_CONSTANT].iloc[0]), confidence_of_each_interval(len(groups))
    slopes = {
        at: slope_of_best_rate(
            score_grid(rows.drop(columns=BEST_CONSTANT), key), None if np.isnan(known) else known, level, ROWS[key]
        )
        for at, rows in groups
    }
    return weigh(
        (
            Quantity(name=f"{at} e", estimate=partial(named_estimate, slope.estimate), margin=margin)
            for at, slope in slopes.items()
        ),
        remark="; ".join(f"{at} {slope.basis_text}" for at, slope in slopes.items()),
    )


def rows_with_noise_of_mean(results: SearchResults) -> pd.DataFrame:
    """The rows with the noise on the mean of a batch, the noise multiplier over its size, in place of the multiplier.

    A search with one size of batches has no such rows.
    """
    table = results.table
    if BATCH not in table:
        return table[:0]
    noise = table[NOISE].astype(float) / table[BATCH].astype(float)
    others = table.drop(columns=[NOISE, f"privacy.{NOISE}", "epsilon_alone"], errors="ignore")
    return others.assign(**{NOISE_OF_MEAN: noise.map(lambda one: f"{one:.4g}")})


def evidence_that_batch_size_matters_little(table: pd.DataFrame, method: str) -> ClaimEvidence:
    """The best scores of all sizes of batches are close wherever sizes share the noise on the mean of a batch."""
    quantities, shows = [], []
    for noise, rows in group_rows_by_column(rows_of_method(table, method), NOISE_OF_MEAN):
        pooled = point_scores(rows)
        sizes = sorted(set(pooled.settings[BATCH]))
        shows += [pooled.has_significant_differences] * (len(sizes) > 1)
        quantities += [
            Quantity(
                name=f"noise of the mean {noise:.3g}: {large} - {small} records",
                estimate=(best_score(pooled, **{BATCH: large}) - best_score(pooled, **{BATCH: small})).estimate,
                margin=CLOSE,
            )
            for small, large in combinations(sizes, 2)
        ]
    return weigh(quantities, shows_differences=all(shows))


def evidence_that_many_rates_are_prunable(table: pd.DataFrame) -> ClaimEvidence:
    """At least half of the learning rates are never nearly the best, at every noise; in direction, some are."""
    groups = rows_by_noise(rows_of_method(table, "dpsgd"))
    found = [_evidence_on_prunable_rates(at, rows, len(groups)) for at, rows in groups]
    return ClaimEvidence(
        parts=tuple(part for one in found for part in one.parts),
        verdict=min((one.verdict for one in found), key=_RANKS.index, default=Verdict.UNDECIDED),
        remark="; ".join(one.remark for one in found),
        flip="; ".join(one.flip for one in found),
    )


_RANKS = [Verdict.REFUTED, Verdict.UNDECIDED, Verdict.MISSED, Verdict.HOLDS]
"""Verdicts from the one that decides a claim at several noises first to the one that decides it last."""


def _evidence_on_prunable_rates(at: str, rows: pd.DataFrame, groups: int) -> ClaimEvidence:
    pooled = point_scores(rows)
    rates = sorted({float(rate) for rate in pooled.settings[LR]})
    by_rate = {rate: weigh(_deficits_of_rate(at, pooled, rate), joint=groups * len(rates)) for rate in rates}
    margins = {
        rate: joint_verdict(part.margin.verdict_on_range(part.estimate) for part in one.parts)
        for rate, one in by_rate.items()
    }
    never, needed = ([rate for rate in rates if margins[rate] is one] for one in (Verdict.HOLDS, Verdict.REFUTED))
    undecided = len(rates) - len(never) - len(needed)
    reach = sorted(min(part.estimate.low for part in one.parts) for one in by_rate.values())[len(rates) // 2]
    verdict = verdict_on_direction_and_margin(
        _verdict_on_count(1, len(never), undecided), _verdict_on_count(len(rates) / 2, len(never), undecided)
    )
    return ClaimEvidence(
        parts=tuple(part for one in by_rate.values() for part in one.parts),
        verdict=verdict,
        remark=f"{at} {len(never)} of {len(rates)} learning rates are: {values_text(never)}; {len(needed)} are not: "
        f"{values_text(needed)}; {undecided} cannot be told",
        flip=f"{at} holds "
        + (f"up to a margin of {BETTER.unit.value_text(reach)}" if reach >= 0 else "at no margin above 0.0 points"),
    )


def _verdict_on_count(least: float, certain: int, undecided: int) -> Verdict:
    """Whether a number is at least `least` if `certain` are in it, and so many more may be."""
    if certain >= least:
        return Verdict.HOLDS
    return Verdict.UNDECIDED if certain + undecided >= least else Verdict.REFUTED


def _deficits_of_rate(at: str, pooled: PointScores, rate: float) -> Iterator[Quantity]:
    """How much the best score of a learning rate is below that of the others, at each length."""
    own = pooled.mask_of_points_with_settings(**{LR: rate})
    for length in sorted({int(length) for length in pooled.settings[STEPS]}):
        here = pooled.mask_of_points_with_settings(steps=length)
        mine, others = (
            weighted_mean_of_ordered_scores(pooled, weights_of_best, here & chosen) for chosen in (own, ~own)
        )
        yield Quantity(name=f"{at} lr {rate:g}, {length} steps:", estimate=(others - mine).estimate, margin=BETTER)


def win_counts_of_rate_and_clip_norm_pairs(table: pd.DataFrame) -> dict[tuple[float, float], int]:
    """How often each (lr, clip norm) has the best mean score for a number of steps; the first among equals counts."""
    pooled = point_scores(table)
    counts = {(float(lr), float(clip)): 0 for lr, clip in zip(table[LR], table[CLIP], strict=True)}
    for _, own in group_rows_by_column(pooled.table, STEPS):
        top = own.iloc[int(own["score"].to_numpy().argmax())]
        counts[float(top[LR]), float(top[CLIP])] += 1
    return counts
