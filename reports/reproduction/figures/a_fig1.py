"""Yang et al. 2022, Figures 1 and 2: training loss and accuracy over c and r, without noise and with it."""

from __future__ import annotations

from functools import partial

from dpsweep.reports.reproduction import learning_curves as learning
from dpsweep.reports.reproduction.figures.a_fig3 import CNN
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.results import SearchResults

OUR_VALUES = "The values of c and r, and the learning rates, are ours; the paper's text does not give them."


def make_reproduction(
    results: SearchResults,
    *,
    clipped: str,
    normalized: str,
    title: str,
    source: str,
    differences: tuple[str, ...],
) -> Reproduction:
    """Two charts per method, with a curve per value."""
    families = (learning.family_of_clipping_method(clipped), learning.family_of_normalizing_method(normalized))
    runs = learning.runs_with_curves(results)
    return Reproduction(
        title=title,
        source=f"Yang, Zhang, Chen, Liu 2022, {source}",
        drawing=learning.draw_learning_curves(runs, families),
        sheets=(learning.sheet_of_tuned_learning_rates(runs, families),),
        differences=(OUR_VALUES, *differences),
    )


figure_1 = partial(
    make_reproduction,
    clipped="clipped_sgd",
    normalized="normalized_sgd",
    title="How bounds bias training, without noise",
)
figure_2 = partial(
    make_reproduction,
    clipped="dpsgd",
    normalized="dpnsgd",
    title="How bounds bias private training",
)
FIGURES = {
    "a_fig1": Trained(make=partial(figure_1, source="Figure 1, CIFAR-10", differences=())),
    "a_fig1_mnist": Trained(make=partial(figure_1, source="Figure 1, MNIST", differences=(CNN,))),
    "a_fig2": Trained(make=partial(figure_2, source="Figure 2, CIFAR-10", differences=())),
    "a_fig2_mnist": Trained(make=partial(figure_2, source="Figure 2, MNIST", differences=(CNN,))),
}
"""ResNet20 on CIFAR-10; a small CNN on MNIST, each value of c and r at its best learning rate."""
