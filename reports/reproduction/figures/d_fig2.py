"""Yu, Zhang, Chen 2019, Figure 2: DP-SGD with momentum, a falling clip norm, both and neither, at one budget."""

from __future__ import annotations

import pandas as pd

from dpsweep.reports.content.formatting import number
from dpsweep.reports.reproduction import momentum_and_decay as amended
from dpsweep.reports.reproduction.estimate_text import in_points, joined, judged, points, verdict_of
from dpsweep.reports.reproduction.finding import Finding, Reproduction, Trained
from dpsweep.reports.reproduction.momentum_and_decay import BOTH, FALLING, MOMENTUM, PLAIN
from dpsweep.reports.reproduction.results.differences import EACH_LENGTH, OUR_FALL, OUR_LENGTHS
from dpsweep.reports.reproduction.results.search_results import SearchResults
from dpsweep.reports.reproduction.training import ACCOUNT, costs
from dpsweep.reports.reproduction.tuning_claims import APART


def make(results: SearchResults) -> Reproduction:
    """One curve per method."""
    rows = amended.runs(results)
    return Reproduction(
        title="Momentum and a clip norm that falls",
        source="Yu, Zhang, Chen 2019, Figure 2",
        drawings=(amended.picture(rows, results.quality),),
        findings=(
            amended.better(
                rows,
                [BOTH],
                "DP-SGD with momentum and a clip norm that falls is better than DP-SGD.",
            ),
            amended.better(
                rows,
                [MOMENTUM, FALLING],
                "Either of the two alone is better than DP-SGD.",
                "Momentum alone, and a falling clip norm alone, beat DP-SGD",
            ),
            constrained(rows),
        ),
        sheets=(costs(results),),
        notes=(EACH_LENGTH, ACCOUNT),
        differences=(OUR_LENGTHS, OUR_FALL),
    )


def constrained(rows: pd.DataFrame) -> Finding:
    """The advantage over DP-SGD is larger for smaller numbers of steps."""
    plain, both = amended.best(rows, PLAIN), amended.best(rows, BOTH)
    gains = {noise: both[noise] - score for noise, score in plain.items() if noise in both}
    few, many = min(gains, default=0.0), max(gains, default=0.0)
    estimates = [gain.estimate(f"gain at noise {number(noise)}:") for noise, gain in gains.items()]
    if few < many:
        estimates.append((gains[few] - gains[many]).estimate("with the fewest steps larger by"))
    parts = judged(estimates[-1:] if few < many else (), in_points, least=APART)
    return Finding(
        topic="The gain of momentum and a falling clip norm is largest for few steps",
        claim="The advantage becomes larger when the budget, the number of steps, is more constrained.",
        criterion="with the fewest steps, which is with the least noise, the amended method's gain over DP-SGD is at "
        f"least {points(APART)} larger than with the most",
        numbers=joined(estimates, in_points),
        verdict=verdict_of(parts),
        estimates=tuple(estimates),
        parts=parts,
    )


FIGURE = Trained(experiment="d_fig2", make=make)
