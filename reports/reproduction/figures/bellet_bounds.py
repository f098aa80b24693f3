"""Bellet's lecture on private machine learning: its theorem on DP-SGD, and newer accountants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd

from dpsweep.reports.figures.charts import Chart, Curve, curves_of_columns, draw_charts
from dpsweep.reports.reproduction.finding import Computed, Finding, Reproduction, sheet_of_formatted_values
from dpsweep.reports.reproduction.one_run import (
    LectureRow,
    NoiseRow,
    row_of_lecture_theorem,
    rows_comparing_accountants_by_noise,
)
from dpsweep.reports.statistics.verdict import Verdict

_finding = partial(Finding, paper="Bellet's lecture", where="DP-SGD")

TRUE_COST, SLACK = 0.0216, 46
"""Epsilon of the theorem's noise for its neighbours by an independent calculation, and promised epsilon over it."""


def finding_that_theorem_noise_suffices(row: LectureRow) -> Finding:
    """The theorem's guarantee compared with the proven bound."""
    return _finding(
        topic="The theorem's noise gives (1, 1e-5)-DP",
        claim="With the theorem's noise, a million steps on 1000 records are (1, 1e-5)-DP.",
        criterion="what is proven of the noise by privacy-loss distributions is at most what is promised",
        numbers=f"noise multiplier {row.noise_multiplier:.1f}; promised {row.promised}, proven {row.bound:.4f}",
        flip=f"holds from a promise of {row.bound:.4f} on",
        verdict=Verdict.from_condition(row.bound <= row.promised),
    )


def finding_that_newer_bounds_are_tighter(row: LectureRow) -> Finding:
    """The factor between the promised and the true epsilon."""
    factor = row.promised / row.neighbours
    return _finding(
        topic="Newer bounds are much tighter than the theorem",
        claim="In practice one should apply tighter versions of amplification and composition.",
        criterion=f"the noise truly costs {TRUE_COST} under the worst known neighbours, {SLACK} times less than "
        "promised, and an attack forces nearly as much",
        numbers=f"attack {row.forced:.5f} <= {row.neighbours:.5f}; promised / that = {factor:.1f}",
        verdict=Verdict.from_condition(
            abs(row.neighbours - TRUE_COST) < 1e-4
            and abs(factor - SLACK) < 0.5
            and 0.99 * row.neighbours <= row.forced <= row.neighbours
        ),
    )


def finding_that_moments_and_pld_cost_less(rows: Sequence[NoiseRow]) -> Finding:
    """The lecture's remark on Renyi DP."""
    factors = [factor for row in rows for factor in (row.classical / row.mironov, row.mironov / row.distribution)]
    return _finding(
        topic="Moments Accountant and PLD save over classical composition",
        claim="The moments accountant or Renyi DP saves a factor in the composition and gets better constants.",
        criterion="at every noise multiplier: classical > Moments Accountant > privacy-loss distributions",
        numbers="; ".join(
            f"sigma {row.noise_multiplier}: {row.classical:.4g} > {row.mironov:.4g} > {row.distribution:.4g}"
            for row in rows
        ),
        flip=f"holds up to a factor of {min(factors):.2f}",
        verdict=Verdict.from_condition(all(row.classical > row.mironov > row.distribution for row in rows)),
    )


def make_reproduction() -> Reproduction:
    """The theorem and the accountants, computed."""
    row, rows = row_of_lecture_theorem(), rows_comparing_accountants_by_noise()
    names = {"classical": "classical", "mironov": "Moments Accountant", "distribution": "PLD"}
    by_accountant = pd.DataFrame(rows).set_index("noise_multiplier")[list(names)].rename(columns=names)
    epsilons = {
        "promised by the theorem": row.promised,
        "proven of all neighbours": row.bound,
        "worst known neighbours": row.neighbours,
        "forced by an attack": row.forced,
    }
    return Reproduction(
        title="The classical bounds, and what newer accountants save",
        source="Bellet, lecture on private machine learning: DP-SGD",
        drawing=draw_charts(
            "figure",
            "What the lecture's noise costs by four measures, and one run's epsilon by three accountants.",
            Chart(
                title="The noise of the lecture's theorem",
                x_label="",
                y_label="epsilon",
                curves=tuple(
                    Curve(label=label, x=(float(place),), y=(value,), lined=False)
                    for place, (label, value) in enumerate(epsilons.items())
                ),
                log_y=True,
                ticks=("promised", "proven", "neighbours", "attack"),
            ),
            Chart(
                title="One run by three accountants",
                x_label="noise multiplier",
                y_label="epsilon",
                curves=curves_of_columns(by_accountant),
                log_y=True,
            ),
        ),
        findings=(
            finding_that_theorem_noise_suffices(row),
            finding_that_newer_bounds_are_tighter(row),
            finding_that_moments_and_pld_cost_less(rows),
        ),
        sheets=(
            sheet_of_formatted_values(
                "1000 records, a million steps of one record, delta 1e-5", ("epsilon", "value"), list(epsilons.items())
            ),
            sheet_of_formatted_values(
                "50000 records, batches of 1000, 5000 steps, delta 1e-5",
                ("noise multiplier", *by_accountant),
                list(by_accountant.itertuples()),
            ),
        ),
        notes=("Neighbours differ in one replaced record on the left, in one added or removed record on the right.",),
    )


FIGURES = {"c_bounds": Computed(make=make_reproduction)}
