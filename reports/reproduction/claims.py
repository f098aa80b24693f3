"""Tests of the papers' claims on the table of a sweep, which has one row per run, finished or not.

Every function returns its criterion and the numbers, so that a reader can check both. The criteria are ours: papers
say "flat", "close" or "on a diagonal" and draw it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from dpsweep.reports.content.formatting import method_label, number
from dpsweep.reports.figures.ridge import CLIP, LR, best_row, by, exponent, scores
from dpsweep.reports.reproduction.finding import Finding

REGULARIZER, MOMENTUM, STEPS = "trainer.regularizer", "trainer.momentum", "steps"
FLAT, CLOSE = 0.05, 0.03
APART = 0.01
"""Smallest difference of two scores that counts as better: a smaller one may be the noise of a single run."""

WIDER = 0.1
"""Smallest difference of two shares of a grid that counts as larger: in small grids, single cells decide."""

SLOPES = (-1.5, -0.5)
"""Range of the exponent e in lr ~ clip_norm^e that counts as inverse proportion (e = -1)."""


def points(share: float) -> str:
    """A difference of shares, in percentage points.

    >>> points(0.0312)
    '3.1 points'
    """
    return f"{100 * share:.1f} points"


def flat_in_regularizer(table: pd.DataFrame, normalized: str = "dpnsgd", clipped: str = "dpsgd") -> Finding:
    """At the best learning rate, scores vary little with the normalized method's r, more with the clipped one's c."""
    spreads = {
        noise: (_spread(_of(rows, normalized), REGULARIZER), _spread(_of(rows, clipped), CLIP))
        for noise, rows in by(table, "noise_multiplier")
    }
    return Finding(
        claim=f"{method_label(normalized)} is rather stable in its regularizer r, while {method_label(clipped)} "
        "depends on learning rate and clip norm c.",
        criterion=f"at each method's best lr: the scores over all r within {points(FLAT)}, and closer than those over "
        "all c",
        numbers="; ".join(
            f"noise {number(noise)}: over r {points(flat)}, over c {points(steep)}"
            for noise, (flat, steep) in spreads.items()
        ),
        holds=bool(spreads) and all(flat <= FLAT and flat < steep for flat, steep in spreads.values()),
    )


def easier(table: pd.DataFrame, normalized: str, clipped: str) -> Finding:
    """A larger share of the normalized method's grid is nearly as good as its best cell."""
    shares = {
        noise: {method: _near_best(_of(rows, method)) for method in (normalized, clipped)}
        for noise, rows in by(table, "noise_multiplier")
    }
    return Finding(
        claim=f"{method_label(normalized)} is stable in regularizer and learning rate, so that it could be easier to "
        f"tune than {method_label(clipped)}.",
        criterion=f"the share of a method's grid within {points(FLAT)} of its best is larger by a tenth of the grid",
        numbers="; ".join(
            f"noise {number(noise)}: " + ", ".join(f"{method_label(name)} {value:.0%}" for name, value in both.items())
            for noise, both in shares.items()
        ),
        holds=bool(shares) and all(both[normalized] - both[clipped] >= WIDER for both in shares.values()),
    )


def ridge(table: pd.DataFrame) -> Finding:
    """DP-SGD's best learning rate falls as its clip norm grows."""
    fits = {noise: exponent(_of(rows, "dpsgd")) for noise, rows in by(table, "noise_multiplier")}
    return Finding(
        claim="DP-SGD's optimum follows lr x c: where clip norms are larger, the best learning rate is smaller.",
        criterion=f"best lr ~ c^e with e from {SLOPES[0]} to {SLOPES[1]}, over clip norms whose best lr is not at the "
        "grid's edge, at least 3 of them",
        numbers="; ".join(f"noise {number(noise)}: {_exponent_text(*fit)}" for noise, fit in fits.items()),
        holds=bool(fits) and all(_inverse(*fit) for fit in fits.values()),
    )


def close(table: pd.DataFrame, methods: Sequence[str], claim: str) -> Finding:
    """The methods' best scores are nearly the same."""
    gaps, texts = [], []
    for noise, rows in by(table, "noise_multiplier"):
        best = {method: float(scores(_of(rows, method)).max()) for method in methods}
        gaps.append(max(best.values()) - min(best.values()))
        best_scores = ", ".join(f"{method_label(method)} {value:.1%}" for method, value in best.items())
        texts.append(f"noise {number(noise)}: {best_scores}")
    return Finding(
        claim=claim,
        criterion=f"best scores within {points(CLOSE)} of each other",
        numbers="; ".join(texts),
        holds=bool(gaps) and max(gaps) <= CLOSE,
    )


def diagonal(table: pd.DataFrame) -> Finding:
    """DP-SGD's best learning rate is inversely proportional to its clip norm."""
    fit = exponent(_of(table, "dpsgd"))
    return Finding(
        claim="DP-SGD's best losses lie on a diagonal: the best learning rate is inversely proportional to the clip "
        "norm.",
        criterion=f"best lr ~ C^e with e from {SLOPES[0]} to {SLOPES[1]}, over clip norms whose best lr is not at the "
        "grid's edge, at least 3 of them",
        numbers=_exponent_text(*fit),
        holds=_inverse(*fit),
    )


def no_diagonal(table: pd.DataFrame) -> Finding:
    """DP-Adam's best learning rate does not depend on its clip norm."""
    slope, columns = exponent(_of(table, "dpadam"))
    return Finding(
        claim="DP-Adam has no such diagonal: good learning rates are the same for a wide range of clip norms.",
        criterion=f"best lr ~ C^e with |e| < {-SLOPES[1]}, over at least 3 clip norms whose best lr is not at the "
        "grid's edge",
        numbers=_exponent_text(slope, columns),
        holds=columns >= 3 and abs(slope) < -SLOPES[1],
    )


def momentum(table: pd.DataFrame) -> Finding:
    """A moderate momentum coefficient has the best final score; a large one only starts well."""
    lengths = sorted(set(table[STEPS]))
    last = {float(value): float(scores(rows).max()) for value, rows in by(table[table[STEPS] == lengths[-1]], MOMENTUM)}
    winner = max(last, key=last.__getitem__)
    return Finding(
        claim="The best accuracy in the end is that of momentum 0.6 or 0.7; 0.9 ends with a relatively bad one.",
        criterion=f"after the most steps the best coefficient is 0.6 or 0.7, and 0.9 is {points(APART)} below",
        numbers=f"after {lengths[-1]} steps: " + ", ".join(f"{value:g}: {score:.1%}" for value, score in last.items()),
        holds=winner in (0.6, 0.7) and last[winner] - last.get(0.9, math.inf) >= APART,
    )


def quick_start(table: pd.DataFrame) -> Finding:
    """A large momentum coefficient is better after few steps."""
    first = min(table[STEPS])
    early = {float(value): float(scores(rows).max()) for value, rows in by(table[table[STEPS] == first], MOMENTUM)}
    others = [score for value, score in early.items() if value != 0.9]
    return Finding(
        claim="With momentum 0.9 the accuracy increases faster in the beginning.",
        criterion=f"after the fewest steps 0.9 is at least {points(APART)} above every other coefficient",
        numbers=f"after {first} steps: " + ", ".join(f"{value:g}: {score:.1%}" for value, score in early.items()),
        holds=early.get(0.9, -math.inf) - max(others, default=math.inf) >= APART,
    )


def defaults_do(table: pd.DataFrame, default: Mapping[str, float]) -> Finding:
    """Adam's defaults are near the best of all candidates."""
    values = scores(table)
    at_default_lr = values[table[LR] == default[LR]]
    at_defaults = values[(table[list(default)] == pd.Series(default)).all(axis=1)]
    best = float(values.max())
    return Finding(
        claim="Adam's usual learning rate is close to the best whatever the decay rates, and so are all its defaults.",
        criterion=f"the defaults, and the worst candidate at lr {default[LR]:g}, within {points(CLOSE)} of the best",
        numbers=f"best {best:.1%}; at that lr from {at_default_lr.min():.1%} to {at_default_lr.max():.1%}; "
        f"defaults {at_defaults.max():.1%}",
        holds=len(at_defaults) > 0
        and best - float(at_default_lr.min()) <= CLOSE
        and best - float(at_defaults.max()) <= CLOSE,
    )


def few_candidates_do(table: pd.DataFrame, tuned: Sequence[str], few: str) -> Finding:
    """At equal privacy, the method with few candidates beats as many random candidates of each other method."""
    values = scores(_of(table, few))
    best = float(values.max())
    means = {method: mean_of_best(list(scores(_of(table, method))), len(values)) for method in tuned}
    others = ", ".join(f"{method_label(method)} {value:.1%}" for method, value in means.items())
    return Finding(
        claim=f"For the same privacy, {method_label(few)} with its {len(values)} candidates beats as many candidates "
        "of the others, taken at random.",
        criterion=f"its best score is at least {points(APART)} above the others' mean best score over all such draws",
        numbers=f"{method_label(few)} {best:.1%}; mean best of {len(values)}: {others}",
        holds=all(best - value >= APART for value in means.values()),
    )


def mean_of_best(values: Sequence[float], draws: int) -> float:
    """The expected maximum of `draws` distinct values, drawn at random without replacement.

    >>> round(mean_of_best([0.0, 1.0, 2.0], 2), 3)
    1.667
    """
    ways = math.comb(len(values), draws)
    ranked = sorted(values)
    return sum(value * math.comb(rank, draws - 1) for rank, value in enumerate(ranked)) / ways


def alongside(table: pd.DataFrame, one: str, other: str) -> Finding:
    """Two methods have similar best and median scores for every number of steps."""
    gaps = {}
    for length, rows in by(table, STEPS):
        left, right = scores(_of(rows, one)), scores(_of(rows, other))
        gaps[int(length)] = (float(abs(left.max() - right.max())), float(abs(left.median() - right.median())))
    return Finding(
        claim=f"{method_label(other)} runs alongside {method_label(one)} throughout training, by its best and by its "
        "median candidate.",
        criterion=f"both within {points(CLOSE)} at every length",
        numbers="; ".join(f"{length} steps: best {points(a)}, median {points(b)}" for length, (a, b) in gaps.items()),
        holds=bool(gaps) and all(max(pair) <= CLOSE for pair in gaps.values()),
    )


def wins(table: pd.DataFrame) -> dict[tuple[float, float], int]:
    """How often each (lr, clip norm) is the best for a number of steps; the first among equals counts."""
    counts = {(float(lr), float(clip)): 0 for lr, clip in zip(table[LR], table[CLIP], strict=True)}
    for _, rows in by(table, STEPS):
        best = best_row(rows)
        counts[float(best[LR]), float(best[CLIP])] += 1
    return counts


def prunable(table: pd.DataFrame) -> Finding:
    """Many learning rates are never the best and could be left out of the grid."""
    counts = wins(table)
    rates = sorted({lr for lr, _ in counts})
    never = [lr for lr in rates if not sum(count for (rate, _), count in counts.items() if rate == lr)]
    return Finding(
        claim="Some learning rates of DP-SGD's grid perform poorly throughout and can be pruned.",
        criterion="at least half of the learning rates are never the best, at any length",
        numbers=f"{len(never)} of {len(rates)} never are: {', '.join(f'{lr:g}' for lr in never) or 'none'}",
        holds=2 * len(never) >= len(rates),
    )


def _of(table: pd.DataFrame, method: str) -> pd.DataFrame:
    return table[table["method"] == method]


def _spread(rows: pd.DataFrame, key: str) -> float:
    """The range of the scores over a key, at the learning rate of the best score."""
    values = scores(rows[rows[LR] == best_row(rows)[LR]])
    return float(values.max() - values.min()) if rows[key].nunique() > 1 else math.nan


def _near_best(rows: pd.DataFrame) -> float:
    """The share of scores nearly as good as the best."""
    values = scores(rows)
    return float((values >= values.max() - FLAT).mean())


def _exponent_text(slope: float, columns: int) -> str:
    over = f"{columns} clip norms whose best lr is inside the grid"
    return f"no e, {over}" if math.isnan(slope) else f"e = {slope:.2f} over {over}"


def _inverse(slope: float, columns: int) -> bool:
    return columns >= 3 and SLOPES[0] <= slope <= SLOPES[1]
