"""Claims on how the best learning rate depends on the clip norm."""

from __future__ import annotations

import pandas as pd

from dpsweep.reports.content.formatting import number
from dpsweep.reports.reproduction.estimate_text import as_number, judged, verdict_of
from dpsweep.reports.reproduction.finding import Finding
from dpsweep.reports.statistics.ridge import AT_EDGE, BEST, CLEAR, FEWEST_CELLS, FEWEST_PEAKS, Ridge, ridge
from dpsweep.reports.statistics.run_rows import CLIP, NOISE, by, of_method
from dpsweep.reports.statistics.score_grid import score_grid
from dpsweep.reports.statistics.verdict import confidence

SLOPES = (-1.5, -0.5)
"""Range of the exponent e in lr ~ clip_norm^e that counts as inverse proportion (e = -1)."""

READ_FROM = (
    f"e from the best lr of at least {FEWEST_PEAKS} clip norms whose best score beats the ends and the median of its "
    f"row by {CLEAR:g} standard errors, or else from the axis of the best {BEST:.0%} of the cells, if these are at "
    f"least {FEWEST_CELLS} and at most {AT_EDGE:.0%} of them at the grid's edge"
)


def follows_product(table: pd.DataFrame) -> Finding:
    """DP-SGD's best learning rate falls as its clip norm grows, at every noise."""
    noises = by(table, NOISE)
    level = confidence(len(noises))
    ridges = {
        f"noise {number(noise)}: ": ridge(score_grid(of_method(rows, "dpsgd"), CLIP), level) for noise, rows in noises
    }
    return _finding(
        "DP-SGD's best lr falls as 1 / c",
        "DP-SGD's optimum follows lr x c: where clip norms are larger, the best learning rate is smaller.",
        SLOPES,
        ridges,
    )


def diagonal(table: pd.DataFrame) -> Finding:
    """DP-SGD's best learning rate is inversely proportional to its clip norm."""
    return _finding(
        "DP-SGD's best lr falls as 1 / c",
        "DP-SGD's best losses lie on a diagonal: the best learning rate is inversely proportional to the clip norm.",
        SLOPES,
        {"": ridge(score_grid(of_method(table, "dpsgd"), CLIP))},
    )


def no_diagonal(table: pd.DataFrame) -> Finding:
    """DP-Adam's best learning rate does not depend on its clip norm."""
    return _finding(
        "DP-Adam's best lr does not depend on c",
        "DP-Adam has no such diagonal: good learning rates are the same for a wide range of clip norms.",
        (SLOPES[1], -SLOPES[1]),
        {"": ridge(score_grid(of_method(table, "dpadam"), CLIP))},
    )


def _finding(topic: str, claim: str, between: tuple[float, float], ridges: dict[str, Ridge]) -> Finding:
    parts = judged((one.exponent for one in ridges.values()), as_number, *between)
    return Finding(
        topic=topic,
        claim=claim,
        criterion=f"best lr ~ c^e with e from {between[0]:g} to {between[1]:g}; {READ_FROM}",
        numbers="; ".join(f"{at}{as_number(one.exponent)}, {one.source}" for at, one in ridges.items()),
        verdict=verdict_of(parts),
        estimates=tuple(one.exponent for one in ridges.values()),
        parts=parts,
    )
