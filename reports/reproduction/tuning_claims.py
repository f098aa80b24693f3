"""Claims on how much tuning a method needs: what explains its scores, and how good a few random points are.

The criteria are ours: papers say "stable", "close" or "easier" and draw it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd

from dpsweep.reports.content.formatting import method_label, number
from dpsweep.reports.reproduction.estimate_text import in_percent, in_points, joined, judged, points, verdict_of
from dpsweep.reports.reproduction.finding import Finding
from dpsweep.reports.statistics.point_scores import PointScores, point_scores
from dpsweep.reports.statistics.run_rows import CLIP, NOISE, REGULARIZER, by, of_method
from dpsweep.reports.statistics.score_grid import score_grid
from dpsweep.reports.statistics.score_statistic import ScoreStatistic, best, mean_best, statistic
from dpsweep.reports.statistics.variance_shares import BY_BOTH, BY_SETTING, VarianceShares, variance_shares
from dpsweep.reports.statistics.verdict import IntervalEstimate, Verdict, all_of, confidence, unknown

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


def flat_in_regularizer(table: pd.DataFrame, normalized: str = "dpnsgd", clipped: str = "dpsgd") -> Finding:
    """The normalized method's r explains little of its scores, the clipped one's c much."""
    noises = by(table, NOISE)
    level = confidence(2 * len(noises))
    flat, differ = [], []
    for noise, rows in noises:
        at = f"noise {number(noise)}:"
        r, c = _explained(rows, normalized, REGULARIZER), _explained(rows, clipped, CLIP)
        flat.append(_share(r, f"{at} r explains", level))
        differ.append(_excess(c, r, f"{at} c explains more than r by", level))
    parts = (*judged(flat, in_percent, most=FLAT), *judged(differ, in_points, least=WIDER))
    return Finding(
        topic=f"{method_label(normalized)} is stable in r, {method_label(clipped)} depends on c",
        claim=f"{method_label(normalized)} is rather stable in its regularizer r, while {method_label(clipped)} "
        "depends on learning rate and clip norm c.",
        criterion=f"r, alone and together with lr, explains at most {FLAT:.0%} of the variance over the grid, and c "
        f"at least {points(WIDER)} more",
        numbers="; ".join((joined(flat, in_percent), joined(differ, in_points))),
        verdict=verdict_of(parts),
        estimates=(*flat, *differ),
        parts=parts,
    )


def easier(table: pd.DataFrame, normalized: str, clipped: str) -> Finding:
    """A few random points of the normalized method are better."""
    noises = by(table, NOISE)
    level = confidence(len(noises) * len(FEW))
    gains = [
        (_best_of(rows, normalized, count) - _best_of(rows, clipped, count)).estimate(
            f"noise {number(noise)}, best of {count}:", level
        )
        for noise, rows in noises
        for count in FEW
    ]
    parts = judged(gains, in_points, least=APART)
    return Finding(
        topic=f"{method_label(normalized)} is easier to tune than {method_label(clipped)}",
        claim=f"{method_label(normalized)} is stable in regularizer and learning rate, so that it could be easier to "
        f"tune than {method_label(clipped)}.",
        criterion=f"the mean best score of {' and of '.join(map(str, FEW))} random points is at least "
        f"{points(APART)} above that of {method_label(clipped)}, in the mean over all draws of the grid's points",
        numbers=joined(gains, in_points),
        verdict=verdict_of(parts),
        estimates=tuple(gains),
        parts=parts,
    )


def close(table: pd.DataFrame, methods: Sequence[str], claim: str) -> Finding:
    """The methods' best scores are nearly the same, where the runs can show a difference."""
    noises, pairs = by(table, NOISE), list(combinations(methods, 2))
    level = confidence(len(noises) * len(pairs))
    gaps, verdicts = [], []
    for noise, rows in noises:
        points_of = {method: point_scores(of_method(rows, method)) for method in methods}
        tops = {method: statistic(one, best) for method, one in points_of.items()}
        own = [
            (tops[one] - tops[other]).estimate(
                f"noise {number(noise)}: {method_label(one)} - {method_label(other)}", level
            )
            for one, other in pairs
        ]
        gaps += own
        verdicts.append(able(list(points_of.values()), all_of(gap.verdict(-CLOSE, CLOSE) for gap in own)))
    return Finding(
        topic=f"The best of {_and([method_label(method) for method in methods])} are close",
        claim=claim,
        criterion=f"best scores within {points(CLOSE)} of each other, on grids whose points differ by more than noise",
        numbers=joined(gaps, in_points),
        verdict=all_of(verdicts),
        estimates=tuple(gaps),
        parts=judged(gaps, in_points, -CLOSE, CLOSE),
    )


def few_candidates_do(table: pd.DataFrame, tuned: Sequence[str], few: str) -> Finding:
    """At equal privacy, the method with few candidates beats as many random candidates of each other method."""
    points_of = {method: point_scores(of_method(table, method)) for method in (few, *tuned)}
    count, level = len(points_of[few].means), confidence(len(tuned))
    top = statistic(points_of[few], best)
    gains = [
        (top - statistic(points_of[method], partial(mean_best, draws=count))).estimate(
            f"above {count} of {method_label(method)}:", level
        )
        for method in tuned
    ]
    parts = judged(gains, in_points, least=APART)
    return Finding(
        topic=f"A few candidates of {method_label(few)} beat as many of {_and([method_label(one) for one in tuned])}",
        claim=f"For the same privacy, {method_label(few)} with its {count} candidates beats as many candidates "
        "of the others, taken at random.",
        criterion=f"its best score is at least {points(APART)} above the others' mean best score over all such draws",
        numbers=joined(gains, in_points),
        verdict=verdict_of(parts),
        estimates=tuple(gains),
        parts=parts,
    )


def able(groups: Sequence[PointScores], verdict: Verdict) -> Verdict:
    """The verdict, but undecided instead of `holds` if in no group the points differ by more than their errors.

    A search that shows no difference at all cannot show that there is none between methods.
    """
    return verdict if verdict is Verdict.REFUTED or any(group.vary for group in groups) else Verdict.UNDECIDED


def _and(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _best_of(rows: pd.DataFrame, method: str, count: int) -> ScoreStatistic:
    return statistic(point_scores(of_method(rows, method)), partial(mean_best, draws=count))


def _explained(rows: pd.DataFrame, method: str, key: str) -> VarianceShares | None:
    grid = score_grid(of_method(rows, method), key)
    return None if grid is None else variance_shares(grid)


def _share(shares: VarianceShares | None, name: str, level: float) -> IntervalEstimate:
    return unknown(name) if shares is None else shares.of(name, BY_SETTING, BY_BOTH, level=level)


def _excess(one: VarianceShares | None, other: VarianceShares | None, name: str, level: float) -> IntervalEstimate:
    """How much more of its grid's variance the first method's setting explains."""
    if one is None or other is None:
        return unknown(name)
    difference = VarianceShares(values=np.subtract(one.values, other.values), draws=one.draws - other.draws)
    return difference.of(name, BY_SETTING, BY_BOTH, level=level)
