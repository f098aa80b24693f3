"""Yang et al. 2022: what their noise costs by their own definitions, and their Proposition E.3.

Their definitions: a batch is drawn without replacement and has a fixed size, and neighbours differ in one substituted
record. Their epsilons are those of Poisson sampling where a record is added or removed.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from dpsweep.accounting.notation import epsilon_text_rounded_down
from dpsweep.reports.content.formatting import setting_text
from dpsweep.reports.figures.charts import Chart, curves_of_columns, draw_charts
from dpsweep.reports.reproduction.figures.yang_searches import YANG
from dpsweep.reports.reproduction.finding import Computed, Finding, Reproduction, sheet_of_formatted_values
from dpsweep.reports.reproduction.one_run import PRINTED, epsilon_rows_of_fixed_batches
from dpsweep.reports.statistics.verdict import Verdict


def finding_on_printed_epsilons(forced: Mapping[float, float]) -> Finding:
    """The printed epsilons against what an attack forces, by noise multiplier."""
    return _finding_on_stated_epsilons(
        PRINTED,
        forced,
        stated="printed",
        topic="Noise 3.6, 2.0 and 1.2 costs epsilon 2, 4 and 8",
        where="Section 4, Definition 2.1, Algorithm 1",
        claim="With batches of fixed size without replacement, one record substituted, noise multipliers of 3.6, 2.0 "
        "and 1.2 cost epsilon 2, 4 and 8.",
    )


def finding_on_closed_formula(formula: Mapping[float, float], forced: Mapping[float, float]) -> Finding:
    """The proposition's epsilons against what an attack forces, by noise multiplier."""
    return _finding_on_stated_epsilons(
        formula,
        forced,
        stated="by the proposition",
        topic="Proposition E.3 bounds the cost of one run",
        where="Proposition E.3",
        claim="Sampling without replacement has Renyi divergence of at most 7 q^2 alpha / sigma^2 for orders up to "
        "sigma^2 / 2 ln(1 / q), which bounds the cost of a run.",
    )


def _finding_on_stated_epsilons(
    epsilons: Mapping[float, float], forced: Mapping[float, float], *, stated: str, topic: str, where: str, claim: str
) -> Finding:
    wrong = [setting_text(noise) for noise, epsilon in epsilons.items() if forced[noise] > epsilon]
    return Finding(
        topic=topic,
        paper="Yang et al. 2022",
        where=where,
        claim=claim,
        criterion="an explicit attack on these batches and neighbours forces no more, at each noise multiplier",
        numbers="; ".join(
            f"sigma {setting_text(noise)}: {stated} {epsilon:.4g}, at least {epsilon_text_rounded_down(forced[noise])}"
            for noise, epsilon in epsilons.items()
        ),
        verdict=Verdict.from_condition(not wrong),
        flip=f"holds from {max(forced[noise] / epsilon for noise, epsilon in epsilons.items()):.2f} times that on",
        scope=f"at sigma {', '.join(wrong)}" if 0 < len(wrong) < len(epsilons) else "",
    )


def make_reproduction() -> Reproduction:
    """The paper's three noise multipliers by its own definitions."""
    bound, _, formula = epsilon_rows_of_fixed_batches()
    noises = tuple(PRINTED)
    epsilons = pd.DataFrame(
        {
            "printed": PRINTED.values(),
            "Proposition E.3": formula.epsilons,
            "forced by an attack": bound.forced,
            "proven bound": bound.epsilons,
        },
        index=noises,
    )
    forced = dict(zip(noises, bound.forced, strict=True))
    return Reproduction(
        title="What the noise costs by the paper's own definitions",
        source=f"{YANG}, Section 4 and Proposition E.3",
        drawing=draw_charts(
            "figure",
            "Epsilon over the noise multiplier: printed, by Proposition E.3, forced by an attack, and proven.",
            Chart(
                title="Fixed batches, one record substituted",
                x_label="noise multiplier",
                y_label="epsilon",
                curves=curves_of_columns(epsilons),
                log_y=True,
            ),
        ),
        findings=(
            finding_on_printed_epsilons(forced),
            finding_on_closed_formula(dict(zip(noises, formula.epsilons, strict=True)), forced),
        ),
        sheets=(
            sheet_of_formatted_values(
                "50000 records, batches of 1000, 5000 steps, delta 1e-5",
                ("noise multiplier", *map(str, epsilons)),
                list(epsilons.itertuples()),
            ),
        ),
        notes=(
            "The printed epsilons are those of the Moments Accountant for Poisson sampling where a record is added or "
            "removed. The attack is explicit: one record with a constant gradient, replaced by its opposite.",
        ),
    )


FIGURES = {"a_price": Computed(make=make_reproduction)}
