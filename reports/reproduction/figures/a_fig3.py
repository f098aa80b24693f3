"""Yang et al. 2022, Figures 3 to 5: maps of normalized methods over lr x regularizer, of clipped ones over lr x c."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpsweep.reports.content.panels import build_map_panels
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.figures.heatmap import draw_joint_and_per_method_heatmaps
from dpsweep.reports.reproduction.claims import gains_by_range_of_rates
from dpsweep.reports.reproduction.finding import Reproduction, Trained, sheet_of_formatted_values
from dpsweep.reports.reproduction.one_run import PRINTED
from dpsweep.reports.reproduction.results import SearchResults

CNN = "A small CNN, batches of 256 and 150 steps in place of the paper's network."
FEATURES = "A linear model of frozen public features, batches of 256 and 150 steps in place of the paper's network."
SAMPLER = "The noise is solved anew for single runs of epsilon 2, 4 and 8 where a record is replaced."
OTHER_RATES = "Larger learning rates beside the paper's own, since these models need them."
NO_CLAIMS = "The paper makes no claim on these maps; ours are those of its Figure 4, for the other two methods."
ROBERTA = "The paper fine-tunes RoBERTa-base with frozen embeddings; this is scale=full here."
GAINS = "Gain of the normalized method in points, by its noise, number of random points, and range of learning rates"
SMALL_CNN, FROZEN = (CNN, OTHER_RATES, SAMPLER), (FEATURES, OTHER_RATES, SAMPLER)


def make_reproduction(
    results: SearchResults,
    *,
    title: str,
    figure: str,
    data: str,
    normalized: str = "dpnsgd",
    clipped: str = "dpsgd",
    differences: tuple[str, ...] = (),
) -> Reproduction:
    """One map per method and noise multiplier, and the gain of the normalized method by the range of learning rates."""
    return Reproduction(
        title=title.format(data=data),
        source=f"Yang, Zhang, Chen, Liu 2022, {figure}, {data}",
        drawing=draw_map_per_method_and_noise(results),
        sheets=(sheet_of_gains_by_range(results, normalized, clipped),),
        differences=differences,
    )


def reproduction_of_printed_figure_3(results: SearchResults) -> Reproduction:
    """Figure 3 for CIFAR-10 and ResNet20, with the paper's epsilons."""
    whole = figure_3(results, data="CIFAR-10")
    caption = "Epsilon of one run as the paper prints it, at full scale"
    printed = sheet_of_formatted_values(caption, ("noise multiplier", "epsilon"), list(PRINTED.items()))
    return replace(whole, sheets=(*whole.sheets, printed))


def sheet_of_gains_by_range(results: SearchResults, normalized: str, clipped: str) -> Sheet:
    """How much the mean best of a few random points of the normalized method is better, by range of learning rates."""
    gains = gains_by_range_of_rates(results.table, normalized, clipped)
    ends = sorted({one.high for one in gains})
    rows: dict[tuple[float, int, float], dict[float, str]] = {}
    for one in gains:
        rows.setdefault((one.noise, one.tries, one.low), {})[one.high] = f"{100 * one.gain:.1f}"
    return sheet_of_formatted_values(
        GAINS,
        ("noise", "points", "lr from", *(f"to {end:g}" for end in ends)),
        [(*key, *(row.get(end, "") for end in ends)) for key, row in rows.items()],
    )


def draw_map_per_method_and_noise(results: SearchResults) -> Drawing:
    """One map per method and noise multiplier, as on a sweep's page."""
    panels = build_map_panels(results.table, results.axes)
    whole, *_ = draw_joint_and_per_method_heatmaps(panels, f"{results.measure}, %")
    return replace(whole, name="figure", panels=())


figure_3 = partial(make_reproduction, figure="Figure 3", title="What DP-NSGD and DP-SGD ask to be tuned")
figure_4 = partial(make_reproduction, figure="Figure 4", title="DP-NSGD and DP-SGD on {data}")
figure_5 = partial(
    make_reproduction,
    figure="Figure 5",
    title="DP-NAdam and DP-Adam on {data}",
    normalized="dpnadam",
    clipped="dpadam",
)
FIGURES = {
    "a_fig3": Trained(make=reproduction_of_printed_figure_3),
    "a_fig3_cifar10": Trained(make=partial(figure_3, data="CIFAR-10", differences=FROZEN)),
    "a_fig3_mnist": Trained(make=partial(figure_3, data="MNIST", differences=SMALL_CNN)),
    "a_fig4": Trained(make=partial(figure_4, data="SST-2", differences=(ROBERTA,))),
    "a_fig4_sst2": Trained(make=partial(figure_4, data="SST-2", differences=FROZEN)),
    "a_fig5": Trained(make=partial(figure_5, data="SST-2", differences=(NO_CLAIMS, ROBERTA))),
    "a_fig5_cifar10": Trained(make=partial(figure_5, data="CIFAR-10", differences=(*FROZEN, NO_CLAIMS))),
    "a_fig5_mnist": Trained(make=partial(figure_5, data="MNIST", differences=(*SMALL_CNN, NO_CLAIMS))),
    "a_fig5_sst2": Trained(make=partial(figure_5, data="SST-2", differences=(*FROZEN, NO_CLAIMS))),
}
