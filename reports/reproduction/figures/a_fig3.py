"""Yang et al. 2022, Figures 3 to 5: maps of normalized methods over lr x regularizer, of clipped ones over lr x c."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from dpsweep.reports.content.formatting import method_label, setting_text
from dpsweep.reports.content.panels import build_map_panels
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.figures.heatmap import draw_joint_and_per_method_heatmaps
from dpsweep.reports.reproduction import claims
from dpsweep.reports.reproduction.finding import Finding, Reproduction, Trained, sheet_of_formatted_values
from dpsweep.reports.reproduction.one_run import PRINTED
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.reproduction.training import ACCOUNT, sheet_of_prices_by_accountant
from dpsweep.reports.statistics.point_scores import NOISE, group_rows_by_column

CNN = "A small CNN, batches of 256 and 150 steps in place of the paper's network, which two cores do not train in days."
FEATURES = (
    "A linear model of frozen public features, batches of 256 and 150 steps in place of the paper's network, which two "
    "cores do not train in days."
)
SAMPLER = (
    "Batches are drawn as in the paper, exactly so many records a step without replacement; the noise is solved anew "
    "for single runs of epsilon 2, 4 and 8 where a record is replaced."
)
OTHER_RATES = (
    "The paper's clip norms and regularizers; larger learning rates beside its own, since these models need them."
)
NO_CLAIMS = "The paper makes no claim on these maps: the claims are those of its Figure 4, for the other two methods."
ROBERTA = "The paper fine-tunes RoBERTa-base with frozen embeddings; this is scale=full here."
BEST_CONSTANT = {"cifar10": 1000 / 10_000, "mnist": 1135 / 10_000}
"""The accuracy of always saying the most frequent class of a data set's public test records."""

SMALL_CNN, FROZEN = (CNN, OTHER_RATES, SAMPLER), (FEATURES, OTHER_RATES, SAMPLER)


def reproduction_of_figure_3(results: SearchResults, *, data: str, differences: tuple[str, ...]) -> Reproduction:
    """One map per method and noise multiplier, as on a sweep's page."""
    return Reproduction(
        title="What DP-NSGD and DP-SGD ask to be tuned",
        source=f"Yang, Zhang, Chen, Liu 2022, Figure 3, {data}",
        drawings=(draw_map_per_method_and_noise(results),),
        findings=(
            claims.finding_that_regularizer_matters_little(results.table),
            finding_that_rate_falls_as_clip_grows(results.table, BEST_CONSTANT.get(results.facts.account)),
            _finding_that_best_scores_are_close(results, "dpnsgd", "dpsgd"),
        ),
        sheets=(sheet_of_prices_by_accountant(results),),
        notes=(ACCOUNT,),
        differences=differences,
    )


def finding_that_rate_falls_as_clip_grows(table: pd.DataFrame, best_constant: float | None) -> Finding:
    """DP-SGD's best learning rate falls as its clip norm grows, at every noise."""
    return claims.finding_on_slopes(
        "DP-SGD's best lr falls as 1 / c",
        "DP-SGD's optimum follows lr x c: where clip norms are larger, the best learning rate is smaller.",
        claims.SLOPES,
        {f"noise {setting_text(noise)}: ": rows for noise, rows in group_rows_by_column(table, NOISE)},
        "dpsgd",
        best_constant,
    )


def reproduction_of_printed_figure_3(results: SearchResults) -> Reproduction:
    """Figure 3 for CIFAR-10 and ResNet20, with the paper's epsilons."""
    whole = reproduction_of_figure_3(results, data="CIFAR-10", differences=())
    caption = "Epsilon of one run as the paper prints it, at full scale"
    printed = sheet_of_formatted_values(caption, ("noise multiplier", "epsilon"), list(PRINTED.items()))
    return replace(whole, sheets=(*whole.sheets, printed))


def reproduction_of_method_pair(
    results: SearchResults, *, normalized: str, clipped: str, figure: str, data: str, differences: tuple[str, ...]
) -> Reproduction:
    """One map per method and noise multiplier, and the test whether the normalized method is easier to tune."""
    return Reproduction(
        title=f"{method_label(normalized)} and {method_label(clipped)} on {data}",
        source=f"Yang, Zhang, Chen, Liu 2022, {figure}, {data}",
        drawings=(draw_map_per_method_and_noise(results),),
        findings=(
            claims.finding_that_normalized_tunes_easier(results.table, normalized, clipped),
            claims.finding_that_regularizer_matters_little(results.table, normalized, clipped),
            _finding_that_best_scores_are_close(results, normalized, clipped),
        ),
        sheets=(sheet_of_prices_by_accountant(results),),
        notes=(ACCOUNT,),
        differences=differences,
    )


def draw_map_per_method_and_noise(results: SearchResults) -> Drawing:
    """One map per method and noise multiplier, as on a sweep's page."""
    whole = draw_joint_and_per_method_heatmaps(build_map_panels(results.table, results.axes), f"{results.measure}, %")[
        0
    ]
    return Drawing(name="figure", alt=whole.alt, png=whole.png, svg=whole.svg, pdf=whole.pdf, failure=whole.failure)


def _finding_that_best_scores_are_close(results: SearchResults, normalized: str, clipped: str) -> Finding:
    both = f"{method_label(normalized)} and {method_label(clipped)}"
    return claims.finding_that_best_scores_are_close(
        results.table, (normalized, clipped), f"At their best, {both} reach about the same accuracy."
    )


figure_4 = partial(reproduction_of_method_pair, normalized="dpnsgd", clipped="dpsgd", figure="Figure 4")
figure_5 = partial(reproduction_of_method_pair, normalized="dpnadam", clipped="dpadam", figure="Figure 5")
FIGURES = {
    "a_fig3": Trained(make=reproduction_of_printed_figure_3),
    "a_fig3_cifar10": Trained(make=partial(reproduction_of_figure_3, data="CIFAR-10", differences=FROZEN)),
    "a_fig3_mnist": Trained(make=partial(reproduction_of_figure_3, data="MNIST", differences=SMALL_CNN)),
    "a_fig4": Trained(make=partial(figure_4, data="SST-2", differences=(ROBERTA,))),
    "a_fig4_sst2": Trained(make=partial(figure_4, data="SST-2", differences=FROZEN)),
    "a_fig5": Trained(make=partial(figure_5, data="SST-2", differences=(NO_CLAIMS, ROBERTA))),
    "a_fig5_cifar10": Trained(make=partial(figure_5, data="CIFAR-10", differences=(*FROZEN, NO_CLAIMS))),
    "a_fig5_mnist": Trained(make=partial(figure_5, data="MNIST", differences=(*SMALL_CNN, NO_CLAIMS))),
    "a_fig5_sst2": Trained(make=partial(figure_5, data="SST-2", differences=(*FROZEN, NO_CLAIMS))),
}
