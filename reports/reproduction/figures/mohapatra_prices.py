"""Mohapatra et al. 2022, Figures 1 and 9 and Table 3: prices of random stopping (LT) and of composition (MA).

LT is Liu and Talwar's random stopping, MA composition by the Moments Accountant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import pandas as pd

from dpsweep.reports.figures.charts import Chart, Curve, curves_of_columns, draw_charts
from dpsweep.reports.reproduction.figures.mohapatra_searches import MOHAPATRA
from dpsweep.reports.reproduction.finding import Computed, Finding, Reproduction, sheet_of_formatted_values
from dpsweep.reports.reproduction.honest_tuning import (
    DATA_SETS,
    OPTIMIZERS,
    BlowUpRow,
    CandidatesRow,
    CostRow,
    crossing_number_of_candidates,
    epsilons_of_figure_1_stopping,
    rows_of_figure_1_blow_up,
    rows_of_figure_9,
    rows_of_table_3,
)
from dpsweep.reports.statistics.verdict import Verdict

_finding = partial(Finding, paper="Mohapatra et al. 2022")

RECORDS = (1000, 2000, 5000, 10_000, 20_000, 60_000, 100_000, 200_000, 500_000, 1_000_000)
SIZES = (5000, 10_000, 60_000)
GAMMAS = (1.0, 0.1, 0.01, 0.001)
RATIOS = {10_000: 4.8, 1_000_000: 7.3}
"""The ratios that Figure 1 prints, at the sizes where our ratios round to them."""

BARELY = 0.25
"""Our criterion for the paper's "barely increases": at most this share, from one expected try to a thousand."""


def finding_on_stopping_cost_over_one_run(rows: Sequence[BlowUpRow]) -> Finding:
    """The claim of Figure 1's left panel."""
    ratios = {row.records: row.ratio for row in rows}
    deviation = max(abs(ratios[records] - printed) for records, printed in RATIOS.items())
    lowest, highest = min(RECORDS[1:], key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    return _finding(
        topic="Random stopping costs 4.8 to 7.3 times one run",
        where="Figure 1",
        claim="A single run tuned by LT costs about 5 times the run itself, more on larger data sets: 4.8x to 7.3x.",
        criterion="within 0.06 of what is printed, and never falling with the number of records",
        numbers="; ".join(
            f"{records} records: printed {printed}, ours {ratios[records]:.2f}" for records, printed in RATIOS.items()
        )
        + f"; from {ratios[lowest]:.2f} at {lowest} records to {ratios[highest]:.2f} at {highest}",
        flip=f"holds from a deviation of {deviation:.2f} on",
        verdict=Verdict.from_condition(deviation <= 0.06 and _is_never_falling([row.ratio for row in rows])),
    )


def finding_that_more_tries_cost_little(epsilons: Mapping[int, Sequence[float]]) -> Finding:
    """The claim of Figure 1's middle panel, on epsilon over falling gamma by number of records."""
    growth = {records: prices[-1] / prices[0] - 1 for records, prices in epsilons.items()}
    return _finding(
        topic="More expected tries barely cost more under random stopping",
        where="Figure 1",
        claim="Once its first try is paid for, LT barely costs more with more expected tries, 1 / gamma.",
        criterion=f"by at most {BARELY:.0%} from one expected try to a thousand",
        numbers="; ".join(f"{records} records: {share:+.1%}" for records, share in growth.items()),
        flip=f"holds from {max(growth.values()):.1%} on",
        verdict=Verdict.from_condition(all(0 <= share <= BARELY for share in growth.values())),
    )


def finding_that_composition_affords_many(rows: Sequence[BlowUpRow]) -> Finding:
    """The claim of Figure 1's right panel."""
    counts = [row.candidates for row in rows]
    return _finding(
        topic="Composition affords many candidates for random stopping's least price",
        where="Figure 1",
        claim="For the least that LT costs, MA composes a considerable number of candidates, more on larger data sets.",
        criterion="at least 2 candidates everywhere, never falling with the number of records, above 100 at a million",
        numbers="; ".join(f"{row.records} records: {row.candidates}" for row in rows),
        flip=f"holds up to {min(counts)} candidates everywhere and {counts[-1] - 1} at a million",
        verdict=Verdict.from_condition(min(counts) >= 2 and _is_never_falling(counts) and counts[-1] > 100),
    )


def reproduction_of_figure_1() -> Reproduction:
    """All three panels."""
    rows, stopping = rows_of_figure_1_blow_up(RECORDS), epsilons_of_figure_1_stopping(SIZES, GAMMAS)
    prices = pd.DataFrame(rows).set_index("records")
    prices["blow-up"] = [row.ratio for row in rows]
    by_gamma = pd.DataFrame(stopping, index=GAMMAS)
    chart = partial(Chart, x_label="records", log_x=True)
    return Reproduction(
        title="What random stopping costs",
        source=f"{MOHAPATRA}, Figure 1",
        drawing=draw_charts(
            "figure",
            "Three charts: LT's price over a run's, LT's price over gamma, and candidates that MA affords.",
            chart(
                title="Blow-up of one run",
                y_label="epsilon by LT / epsilon of the run",
                curves=curves_of_columns(prices[["blow-up"]]),
            ),
            chart(
                title="More tries",
                x_label="expected tries, 1 / gamma",
                y_label="epsilon by LT",
                curves=curves_of_columns(by_gamma.add_suffix(" records").set_axis([1 / gamma for gamma in GAMMAS])),
                log_y=True,
            ),
            chart(
                title="What MA affords for that",
                y_label="candidates by MA",
                curves=curves_of_columns(prices[["candidates"]].rename(columns={"candidates": "MA"})),
                log_y=True,
            ),
        ),
        findings=(
            finding_on_stopping_cost_over_one_run(rows),
            finding_that_more_tries_cost_little(stopping),
            finding_that_composition_affords_many(rows),
        ),
        sheets=(
            sheet_of_formatted_values(
                "One run, and LT with gamma = 1",
                ("records", "one run", "LT", "blow-up", "candidates by MA"),
                [(row.records, row.one_run, row.random_stopping, row.ratio, row.candidates) for row in rows],
            ),
            sheet_of_formatted_values(
                "LT by gamma",
                ("records", "gamma", "epsilon"),
                [(size, *pair) for size in SIZES for pair in by_gamma[size].items()],
            ),
        ),
        notes=(
            "Noise multiplier 4, batches of 250, 10000 steps, delta 1e-5, Mironov's conversion. The jump beyond 200000 "
            "records comes from the Renyi curve: LT needs one run's epsilon at a delta near 1e-14.",
        ),
    )


def _is_never_falling(values: Sequence[float]) -> bool:
    return all(left <= right for left, right in pairwise(values))


CROSSINGS = {5000: 14, 60_000: 26}
"""Number of candidates up to which MA is cheaper, as Figure 9 prints it."""

CONSTANT = 0.15
"""Our criterion for the paper's "almost constant": growth within this share, from 1 to 40 candidates."""


def finding_that_crossings_match_printed(rows: Mapping[int, Sequence[CandidatesRow]]) -> Finding:
    """The number of candidates at which the curves cross."""
    counts = {records: crossing_number_of_candidates(curve) for records, curve in rows.items()}
    return _finding(
        topic="Composition affords 14 candidates for random stopping's price at 5000 records, 26 at 60000",
        where="Figure 9",
        claim="MA composes up to 14 candidates for LT's price at 5000 records, and up to 26 at 60000.",
        criterion="exactly these numbers",
        numbers="; ".join(f"{size} records: printed {CROSSINGS[size]}, ours {count}" for size, count in counts.items()),
        verdict=Verdict.from_condition(counts == CROSSINGS),
    )


def finding_that_stopping_price_is_constant(rows: Mapping[int, Sequence[CandidatesRow]]) -> Finding:
    """The growth of LT's and of MA's price over the chart."""
    growth = {size: curve[-1].random_stopping / curve[0].random_stopping - 1 for size, curve in rows.items()}
    composed = {size: curve[-1].composition / curve[0].composition for size, curve in rows.items()}
    return _finding(
        topic="Random stopping's price is almost constant in the candidates",
        where="Figure 9",
        claim="LT's price remains almost constant as candidates are added, MA's does not.",
        criterion=f"LT grows by at most {CONSTANT:.0%} over the chart, and MA at least doubles",
        numbers="; ".join(f"{size} records: LT {growth[size]:+.1%}, MA x{composed[size]:.1f}" for size in rows),
        flip=f"holds from {max(growth.values()):.1%} on, and up to {min(composed.values()):.1f} times",
        verdict=Verdict.from_condition(max(growth.values()) <= CONSTANT and min(composed.values()) >= 2),
    )


def reproduction_of_figure_9() -> Reproduction:
    """Both panels, each with its numbers."""
    rows = {records: rows_of_figure_9(records) for records in CROSSINGS}
    names = {"random_stopping": "LT (random stopping)", "composition": "MA (composition)"}
    return Reproduction(
        title="Composition against random stopping",
        source=f"{MOHAPATRA}, Figure 9",
        drawing=draw_charts(
            "figure",
            "Two charts, epsilon by LT and by MA over the number of candidates; dashed where they cross.",
            *(
                Chart(
                    title=f"{records} records",
                    x_label="candidates",
                    y_label="epsilon",
                    curves=curves_of_columns(
                        pd.DataFrame(curve).set_index("candidates")[list(names)].rename(columns=names)
                    ),
                    at=(float(crossing_number_of_candidates(curve)),),
                )
                for records, curve in rows.items()
            ),
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


CLOSE = 0.012
"""The largest distance of a cell of Table 3 from what is printed."""


def finding_that_costs_match_printed_table(rows: Sequence[CostRow]) -> Finding:
    """The largest deviation from the printed table."""
    worst = max(rows, key=lambda row: abs(row.epsilon - row.printed))
    return _finding(
        topic="The final epsilons of Table 3",
        where="Table 3",
        claim="The final epsilons of Table 3.",
        criterion=f"every cell within {CLOSE} of what is printed",
        numbers=f"{len(rows)} cells; farthest is {worst.optimizer} on {worst.data_set}: printed {worst.printed}, "
        f"ours {worst.epsilon:.3f}",
        flip=f"holds from a deviation of {abs(worst.epsilon - worst.printed):.3f} on",
        verdict=Verdict.from_condition(all(abs(row.epsilon - row.printed) <= CLOSE for row in rows)),
    )


def finding_that_adam_is_cheapest(rows: Sequence[CostRow]) -> Finding:
    """The table's conclusion: DPAdam costs the least."""
    cost = {(row.data_set, row.optimizer): row.epsilon for row in rows}
    cheapest = {data.name: min(cost[data.name, "DPSGD"], cost[data.name, "DPMomentum"]) for data in DATA_SETS}
    shares = {name: cost[name, "DPAdam"] / other for name, other in cheapest.items()}
    return _finding(
        topic="DP-Adam with 4 candidates is tuned for the least",
        where="Table 3",
        claim="With 4 candidates composed by MA, DPAdam is tuned for less than the others by LT.",
        criterion="on every data set for less than half of what the next one costs",
        numbers="; ".join(f"{name}: {share:.0%}" for name, share in shares.items()),
        flip=f"holds from {max(shares.values()):.0%} of the next one on",
        verdict=Verdict.from_condition(max(shares.values()) < 0.5),
    )


def reproduction_of_table_3() -> Reproduction:
    """All twelve cells."""
    rows, names = rows_of_table_3(), [data.name for data in DATA_SETS]
    table = pd.DataFrame(rows)
    columns = {name: place for place, name in enumerate(OPTIMIZERS)}
    table["place"] = table["data_set"].map(names.index) + 0.2 * (table["optimizer"].map(columns) - 1)
    points = [(name, table[table["optimizer"] == name], "epsilon") for name in OPTIMIZERS]
    points.append(("printed", pd.concat([own for _, own, _ in points]), "printed"))
    return Reproduction(
        title="What tuning costs in the end",
        source=f"{MOHAPATRA}, Table 3",
        drawing=draw_charts(
            "figure",
            "Epsilon of tuning three optimizers, by data set; and what the paper printed.",
            Chart(
                title="Final epsilon, by data set",
                x_label="",
                y_label="epsilon",
                curves=tuple(
                    Curve(label=label, x=tuple(own["place"]), y=tuple(own[column]), lined=False)
                    for label, own, column in points
                ),
                log_y=True,
                ticks=tuple(names),
            ),
        ),
        findings=(finding_that_costs_match_printed_table(rows), finding_that_adam_is_cheapest(rows)),
        sheets=(
            sheet_of_formatted_values(
                "Table 3",
                ("data set", "optimizer", "printed", "ours"),
                [(row.data_set, row.optimizer, row.printed, row.epsilon) for row in rows],
            ),
        ),
        notes=(
            "Noise multiplier 4, batches of 250; DPSGD and DPMomentum by LT with gamma = 1 / candidates and "
            "delta2 = 1e-20, DPAdam by MA; Mironov's conversion with orders up to 512. Delta is a tenth of the delta "
            "in the paper's text; this delta reproduces its numbers.",
        ),
    )


FIGURES = {
    "b_fig1": Computed(make=reproduction_of_figure_1),
    "b_fig9": Computed(make=reproduction_of_figure_9),
    "b_table3": Computed(make=reproduction_of_table_3),
}
