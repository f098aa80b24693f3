"""Yang et al. 2022: the figures that are searches.

Figures 1 and 2 are training loss and accuracy over c and r, Figures 3 to 5 maps over lr x regularizer and lr x c. What
the theorems say of learning rates, clip norms and sizes of batches has no figure in the paper: those searches are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.content.panels import build_map_panels
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.figures.charts import Chart, Map, curves_of_columns, draw_charts, draw_maps
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.figures.heatmap import draw_joint_and_per_method_heatmaps
from dpsweep.reports.reproduction import learning_curves as learning
from dpsweep.reports.reproduction.claims import gains_by_range_of_rates
from dpsweep.reports.reproduction.finding import Trained, sheet_of_formatted_values
from dpsweep.reports.reproduction.one_run import PRINTED
from dpsweep.reports.reproduction.rate_claims import BATCH, NOISE_OF_MEAN, rows_with_noise_of_mean
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.statistics.point_scores import CLIP, LR, METHOD, NOISE, point_scores, rows_of_method

YANG = "Yang, Zhang, Chen, Liu 2022"
OUR_VALUES = "The values of c and r, and the learning rates, are ours; the paper's text does not give them."
CNN = "A small CNN, batches of 256 and 150 steps in place of the paper's network."
FEATURES = "A linear model of frozen public features, batches of 256 and 150 steps in place of the paper's network."
SAMPLER = "The noise is solved anew for single runs of epsilon 2, 4 and 8 where a record is replaced."
OTHER_RATES = "Larger learning rates beside the paper's own, since these models need them."
NO_CLAIMS = "The paper makes no claim on these maps; ours are those of its Figure 4, for the other two methods."
ROBERTA = "The paper fine-tunes RoBERTa-base with frozen embeddings; this is scale=full here."
NO_FIGURE = "The paper has theorems and no such figure: the whole search is ours."
MORE_CLIPS = "Twelve clip norms in the range of the paper's five, and more learning rates."
GAINS = "Gain of the normalized method in points, by its noise, number of random points, and range of learning rates"
TUNED = "What DP-NSGD and DP-SGD ask to be tuned"
SMALL_CNN, FROZEN = (CNN, OTHER_RATES, SAMPLER), (FEATURES, OTHER_RATES, SAMPLER)


def sheet_of_printed_epsilons(results: SearchResults) -> Sheet:
    """The paper's epsilons of one run, whatever was found here."""
    caption = "Epsilon of one run as the paper prints it, at full scale"
    return sheet_of_formatted_values(caption, ("noise multiplier", "epsilon"), list(PRINTED.items()))


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


def draw_map_of_mean_scores_per_method(results: SearchResults, key: str, axis: str) -> Drawing:
    """A map of mean scores over learning rate and `key` for each method."""
    maps = []
    for method, rows in results.table.groupby(METHOD, sort=False):
        scores = point_scores(rows).table.astype({LR: float, key: float})
        square = scores.pivot_table(index=key, columns=LR, values="score").sort_index().sort_index(axis=1)
        maps.append(Map.from_table(method_label(str(method)), "lr", axis, square))
    return draw_maps("figure", f"Mean score over learning rate and {axis}.", results.measure, *maps)


def draw_best_score_over_batch_size(results: SearchResults) -> Drawing:
    """The best score over the size of batches, a curve for each noise on a batch's mean."""
    table = point_scores(rows_of_method(rows_with_noise_of_mean(results), "dpnsgd")).table
    best = table.groupby([NOISE_OF_MEAN, BATCH])["score"].max().unstack(0)
    noises = sorted(map(str, best), key=float)
    return draw_charts(
        "figure",
        "The best score over the size of batches, a curve for each noise on the mean of a batch.",
        Chart(
            title="At equal noise on the mean",
            x_label="batch size",
            y_label=results.quality,
            curves=curves_of_columns(best[noises].add_prefix("noise ")),
            log_x=True,
        ),
    )


def _figure_of_learning_curves(clipped: str, normalized: str) -> Callable[..., Trained]:
    """A figure with training curves of two methods, a curve per value of c and of r, but for its texts."""
    families = (learning.family_of_clipping_method(clipped), learning.family_of_normalizing_method(normalized))
    return partial(
        Trained,
        draw=partial(learning.draw_learning_curves, families=families),
        sheets=(partial(learning.sheet_of_tuned_learning_rates, families=families),),
    )


def _figure_of_maps(clipped: str, normalized: str, *sheets: Callable[[SearchResults], Sheet]) -> Callable[..., Trained]:
    """A figure with maps of two methods, the gain of the normalized one and these sheets, but for its texts."""
    gains = partial(sheet_of_gains_by_range, normalized=normalized, clipped=clipped)
    return partial(Trained, draw=draw_map_per_method_and_noise, sheets=(gains, *sheets))


figure_1 = partial(
    _figure_of_learning_curves("clipped_sgd", "normalized_sgd"), title="How bounds bias training, without noise"
)
figure_2 = partial(_figure_of_learning_curves("dpsgd", "dpnsgd"), title="How bounds bias private training")
sgd_maps, adam_maps = _figure_of_maps("dpsgd", "dpnsgd"), _figure_of_maps("dpadam", "dpnadam")
FIGURES = {
    "a_fig1": figure_1(source=f"{YANG}, Figure 1, CIFAR-10", differences=(OUR_VALUES,)),
    "a_fig1_mnist": figure_1(source=f"{YANG}, Figure 1, MNIST", differences=(OUR_VALUES, CNN)),
    "a_fig2": figure_2(source=f"{YANG}, Figure 2, CIFAR-10", differences=(OUR_VALUES,)),
    "a_fig2_mnist": figure_2(source=f"{YANG}, Figure 2, MNIST", differences=(OUR_VALUES, CNN)),
    "a_fig3": _figure_of_maps("dpsgd", "dpnsgd", sheet_of_printed_epsilons)(
        title=TUNED, source=f"{YANG}, Figure 3, CIFAR-10"
    ),
    "a_fig3_cifar10": sgd_maps(title=TUNED, source=f"{YANG}, Figure 3, CIFAR-10", differences=FROZEN),
    "a_fig3_mnist": sgd_maps(title=TUNED, source=f"{YANG}, Figure 3, MNIST", differences=SMALL_CNN),
    "a_fig4": sgd_maps(title="DP-NSGD and DP-SGD on SST-2", source=f"{YANG}, Figure 4, SST-2", differences=(ROBERTA,)),
    "a_fig4_sst2": sgd_maps(title="DP-NSGD and DP-SGD on SST-2", source=f"{YANG}, Figure 4, SST-2", differences=FROZEN),
    "a_fig5": adam_maps(
        title="DP-NAdam and DP-Adam on SST-2",
        source=f"{YANG}, Figure 5, SST-2",
        differences=(NO_CLAIMS, ROBERTA),
    ),
    "a_fig5_cifar10": adam_maps(
        title="DP-NAdam and DP-Adam on CIFAR-10",
        source=f"{YANG}, Figure 5, CIFAR-10",
        differences=(*FROZEN, NO_CLAIMS),
    ),
    "a_fig5_mnist": adam_maps(
        title="DP-NAdam and DP-Adam on MNIST",
        source=f"{YANG}, Figure 5, MNIST",
        differences=(*SMALL_CNN, NO_CLAIMS),
    ),
    "a_fig5_sst2": adam_maps(
        title="DP-NAdam and DP-Adam on SST-2",
        source=f"{YANG}, Figure 5, SST-2",
        differences=(*FROZEN, NO_CLAIMS),
    ),
    "a_rates": Trained(
        title="The best learning rate and the noise",
        source=f"{YANG}, Theorems 3.2 and 3.4",
        draw=partial(draw_map_of_mean_scores_per_method, key=NOISE, axis="noise multiplier"),
        differences=(FEATURES, NO_FIGURE),
    ),
    "a_clips": Trained(
        title="The best learning rate and the clip norm",
        source=f"{YANG}, Figure 3, DP-SGD, CIFAR-10",
        draw=partial(draw_map_of_mean_scores_per_method, key=CLIP, axis="clip norm"),
        differences=(FEATURES, MORE_CLIPS),
    ),
    "a_batches": Trained(
        title="Whether the size of batches matters",
        source=f"{YANG}, Remark A.1",
        draw=draw_best_score_over_batch_size,
        notes=("Each point is at its best learning rate.",),
        differences=(FEATURES, NO_FIGURE),
    ),
}
