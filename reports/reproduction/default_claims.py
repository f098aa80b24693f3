"""Claims on candidates that need no tuning: default values, a simpler method, and values that can be left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.reproduction.estimate_text import in_points, joined, judged, points, verdict_of
from dpsweep.reports.reproduction.finding import Finding
from dpsweep.reports.reproduction.tuning_claims import APART, CLOSE, able
from dpsweep.reports.statistics.point_scores import PointScores, point_scores
from dpsweep.reports.statistics.run_rows import CLIP, LR, METHOD, STEPS, by
from dpsweep.reports.statistics.score_statistic import best, median, statistic, worst
from dpsweep.reports.statistics.verdict import IntervalEstimate, Verdict, all_of, confidence


def defaults_do(table: pd.DataFrame, default: Mapping[str, float]) -> Finding:
    """Adam's defaults are near the best of all candidates."""
    candidates = point_scores(table)
    at_lr, at_all = candidates.where(**{LR: default[LR]}), candidates.where(**default)
    top, level = statistic(candidates, best), confidence(2)
    losses = (
        (top - statistic(candidates, best, at_all)).estimate("the defaults below the best by", level),
        (top - statistic(candidates, worst, at_lr)).estimate(
            "the worst candidate at the default lr below the best by", level
        ),
    )
    parts = judged(losses, in_points, most=CLOSE)
    return Finding(
        topic="Adam's defaults are near the best of DP-Adam's candidates",
        claim="Adam's usual learning rate is close to the best whatever the decay rates, and so are all its defaults.",
        criterion=f"the defaults, and the worst candidate at lr {default[LR]:g}, within {points(CLOSE)} of the best, "
        "among candidates that differ by more than noise",
        numbers=joined(losses, in_points),
        verdict=able([candidates], verdict_of(parts)),
        estimates=losses,
        parts=parts,
    )


def alongside(table: pd.DataFrame, one: str, other: str) -> Finding:
    """The second method's best and median scores are no worse than the first's, for every number of steps."""
    pooled = point_scores(table[table[METHOD].isin((one, other))])
    lengths = sorted({int(length) for length in pooled.settings[STEPS]})
    level = confidence(2 * len(lengths))
    losses = [
        (
            statistic(pooled, kind, pooled.where(method=one, steps=length))
            - statistic(pooled, kind, pooled.where(method=other, steps=length))
        ).estimate(f"{length} steps, {name}:", level)
        for length in lengths
        for name, kind in (("best", best), ("median", median))
    ]
    parts = judged(losses, in_points, most=CLOSE)
    return Finding(
        topic=f"{method_label(other)} runs alongside {method_label(one)}",
        claim=f"{method_label(other)} runs alongside {method_label(one)} throughout training, by its best and by its "
        "median candidate.",
        criterion=f"at most {points(CLOSE)} below at every length, among candidates that differ by more than noise; "
        "to be above is no objection",
        numbers=f"{method_label(one)} - {method_label(other)}: {joined(losses, in_points)}",
        verdict=able([pooled], verdict_of(parts)),
        estimates=tuple(losses),
        parts=parts,
    )


def prunable(table: pd.DataFrame) -> Finding:
    """Many learning rates are never nearly the best and could be left out of the grid."""
    pooled = point_scores(table)
    rates = sorted({float(rate) for rate in pooled.settings[LR]})
    lengths = sorted({int(length) for length in pooled.settings[STEPS]})
    level = confidence(len(rates))
    losses = {rate: [*_behind(pooled, rate, lengths, level)] for rate in rates}
    verdicts = {rate: all_of(one.verdict(least=APART) for one in own) for rate, own in losses.items()}
    never = [rate for rate in rates if verdicts[rate] is Verdict.HOLDS]
    needed = [rate for rate in rates if verdicts[rate] is Verdict.REFUTED]
    undecided = len(rates) - len(never) - len(needed)
    return Finding(
        topic="Half of DP-SGD's learning rates can be left out",
        claim="Some learning rates of DP-SGD's grid perform poorly throughout and can be pruned.",
        criterion=f"at least half of the learning rates are, by their best clip norm, at least {points(APART)} below "
        "the best of all at every length",
        numbers=f"{len(never)} of {len(rates)} are: {_rates(never)}; {len(needed)} are not: {_rates(needed)}; "
        f"{undecided} cannot be told",
        verdict=_half(len(rates), len(never), undecided),
        estimates=tuple(one for own in losses.values() for one in own),
        parts=tuple(part for own in losses.values() for part in judged(own, in_points, least=APART)),
    )


def wins(table: pd.DataFrame) -> dict[tuple[float, float], int]:
    """How often each (lr, clip norm) has the best mean score for a number of steps; the first among equals counts."""
    pooled = point_scores(table)
    counts = {(float(lr), float(clip)): 0 for lr, clip in zip(table[LR], table[CLIP], strict=True)}
    for _, own in by(pooled.table, STEPS):
        top = own.iloc[int(own["score"].to_numpy().argmax())]
        counts[float(top[LR]), float(top[CLIP])] += 1
    return counts


def _behind(pooled: PointScores, rate: float, lengths: list[int], level: float) -> Iterator[IntervalEstimate]:
    """How much the best score of a learning rate is below that of the others, at each length."""
    own = pooled.where(**{LR: rate})
    for length in lengths:
        here = pooled.where(steps=length)
        mine, others = (statistic(pooled, best, here & chosen) for chosen in (own, ~own))
        yield (others - mine).estimate(f"lr {rate:g}, {length} steps:", level)


def _half(rates: int, never: int, undecided: int) -> Verdict:
    if 2 * never >= rates:
        return Verdict.HOLDS
    return Verdict.UNDECIDED if 2 * (never + undecided) >= rates else Verdict.REFUTED


def _rates(values: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in values) or "none"
