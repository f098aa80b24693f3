"""Mohapatra et al. 2022, Figure 9: the number of candidates at which random stopping (LT) becomes cheaper than MA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpsweep.reports.figures.charts import Chart, Curve, draw_charts
from dpsweep.reports.reproduction.finding import Computed, Finding, Reproduction, sheet_of_formatted_values
from dpsweep.reports.reproduction.honest_tuning import CandidatesRow, crossing_number_of_candidates, rows_of_figure_9
from dpsweep.reports.statistics.verdict import Verdict

PRINTED = {5000: 14, 60_000: 26}
"""Number of candidates up to which MA is cheaper, as printed."""

CONSTANT = 0.15
"""Our criterion for the paper's "almost constant": growth within this share, from 1 to 40 candidates."""


def finding_that_crossings_match_printed(rows: Mapping[int, Sequence[CandidatesRow]]) -> Finding:
    """The number of candidates at which the curves cross."""
    counts = {records: crossing_number_of_candidates(curve) for records, curve in rows.items()}
    return Finding(
        topic="Composition affords 14 candidates for random stopping's price at 5000 records, 26 at 60000",
        paper="Mohapatra et al. 2022",
        where="Figure 9",
        claim="MA composes up to 14 candidates for LT's price at 5000 records, and up to 26 at 60000.",
        criterion="exactly these numbers",
        numbers="; ".join(f"{size} records: printed {PRINTED[size]}, ours {count}" for size, count in counts.items()),
        verdict=Verdict.from_condition(counts == PRINTED),
    )


def finding_that_stopping_price_is_constant(rows: Mapping[int, Sequence[CandidatesRow]]) -> Finding:
    """The growth of LT's and of MA's price over the chart."""
    growth = {size: curve[-1].random_stopping / curve[0].random_stopping - 1 for size, curve in rows.items()}
    composed = {size: curve[-1].composition / curve[0].composition for size, curve in rows.items()}
    return Finding(
        topic="Random stopping's price is almost constant in the candidates",
        paper="Mohapatra et al. 2022",
        where="Figure 9",
        claim="LT's price remains almost constant as candidates are added, MA's does not.",
        criterion=f"LT grows by at most {CONSTANT:.0%} over the chart, and MA at least doubles",
        numbers="; ".join(f"{size} records: LT {growth[size]:+.1%}, MA x{composed[size]:.1f}" for size in rows),
        flip=f"holds from {max(growth.values()):.1%} on, and up to {min(composed.values()):.1f} times",
        verdict=Verdict.from_condition(max(growth.values()) <= CONSTANT and min(composed.values()) >= 2),
    )


def make_reproduction() -> Reproduction:
    """Both panels, from the accountants."""
    rows = {records: rows_of_figure_9(records) for records in PRINTED}
    return Reproduction(
        title="Composition against random stopping",
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figure 9",
        drawing=draw_charts(
            "figure",
            "Two charts, epsilon by LT and by MA over the number of candidates; dashed where they cross.",
            *(_chart_of_epsilon_by_candidates(records, curve) for records, curve in rows.items()),
        ),
        findings=(finding_that_crossings_match_printed(rows), finding_that_stopping_price_is_constant(rows)),
        sheets=tuple(
            sheet_of_formatted_values(
                f"{records} records",
                ("candidates", "MA", "LT"),
                [(row.candidates, row.composition, row.random_stopping) for row in curve],
            )
            for records, curve in rows.items()
        ),
        notes=("Noise multiplier 4, batches of 250, 10000 steps, delta 1e-5, gamma = 1 / candidates, delta2 = 1e-10.",),
    )


def _chart_of_epsilon_by_candidates(records: int, rows: Sequence[CandidatesRow]) -> Chart:
    candidates = tuple(float(row.candidates) for row in rows)
    return Chart(
        title=f"{records} records",
        x_label="candidates",
        y_label="epsilon",
        curves=(
            Curve(label="LT (random stopping)", x=candidates, y=tuple(row.random_stopping for row in rows)),
            Curve(label="MA (composition)", x=candidates, y=tuple(row.composition for row in rows)),
        ),
        at=(float(crossing_number_of_candidates(rows)),),
    )


FIGURES = {"b_fig9": Computed(make=make_reproduction)}
