"""Claims on momentum coefficients, early and late in training."""

from __future__ import annotations

import pandas as pd

from dpsweep.reports.reproduction.estimate_text import in_points, joined, judged, points, verdict_of
from dpsweep.reports.reproduction.finding import Finding
from dpsweep.reports.reproduction.tuning_claims import APART
from dpsweep.reports.statistics.point_scores import PointScores, point_scores
from dpsweep.reports.statistics.run_rows import STEPS
from dpsweep.reports.statistics.score_statistic import ScoreStatistic, best, statistic
from dpsweep.reports.statistics.verdict import confidence

MOMENTUM = "trainer.momentum"
MODERATE, LARGE = (0.6, 0.7), 0.9


def momentum(table: pd.DataFrame) -> Finding:
    """A moderate momentum coefficient has the best final score; a large one only starts well."""
    pooled, length = point_scores(table), max(table[STEPS])
    tops = _best_by_coefficient(pooled, length)
    moderate = [value for value in MODERATE if value in tops]
    others = [value for value in tops if value not in MODERATE]
    level = confidence(len(others))
    top = _best_of(pooled, length, *moderate)
    leads = {value: (top - tops[value]).estimate(f"moderate above {value:g}:", level) for value in others}
    parts = tuple(
        part
        for value, one in leads.items()
        if LARGE in leads and moderate
        for part in judged((one,), in_points, least=APART if value == LARGE else 0.0)
    )
    return Finding(
        topic="Momentum 0.6 or 0.7 is the best in the end, 0.9 is worse",
        claim="The best accuracy in the end is that of momentum 0.6 or 0.7; 0.9 ends with a relatively bad one.",
        criterion="after the most steps, the better of 0.6 and 0.7 is above every other coefficient, and at least "
        f"{points(APART)} above 0.9",
        numbers=f"after {length} steps: {joined(leads.values(), in_points)}",
        verdict=verdict_of(parts),
        estimates=tuple(leads.values()),
        parts=parts,
    )


def quick_start(table: pd.DataFrame) -> Finding:
    """A large momentum coefficient is better after few steps."""
    length = min(table[STEPS])
    tops = _best_by_coefficient(point_scores(table), length)
    others = [value for value in tops if value != LARGE]
    level = confidence(len(others))
    leads = [
        (tops[LARGE] - tops[value]).estimate(f"{LARGE:g} above {value:g}:", level) for value in others if LARGE in tops
    ]
    parts = judged(leads, in_points, least=APART)
    return Finding(
        topic="Momentum 0.9 is the fastest in the beginning",
        claim="With momentum 0.9 the accuracy increases faster in the beginning.",
        criterion=f"after the fewest steps 0.9 is at least {points(APART)} above every other coefficient",
        numbers=f"after {length} steps: {joined(leads, in_points)}",
        verdict=verdict_of(parts),
        estimates=tuple(leads),
        parts=parts,
    )


def _best_by_coefficient(pooled: PointScores, length: int) -> dict[float, ScoreStatistic]:
    """The best score of each momentum coefficient after so many steps; errors are pooled over all lengths."""
    values = sorted(set(pooled.settings[MOMENTUM][pooled.where(steps=length)]))
    return {float(value): _best_of(pooled, length, value) for value in values}


def _best_of(pooled: PointScores, length: int, *values: float) -> ScoreStatistic:
    """The best score with one of these coefficients after so many steps."""
    return statistic(pooled, best, pooled.where(**{"steps": length, MOMENTUM: values}))
