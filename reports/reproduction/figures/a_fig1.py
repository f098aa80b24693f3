"""Yang et al. 2022, Figure 1: training loss and accuracy of clipped and normalized SGD without noise, over c and r."""

from __future__ import annotations

from dpsweep.reports.reproduction import learning_curves as learning
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.results.differences import OUR_VALUES
from dpsweep.reports.reproduction.results.search_results import SearchResults

CLIPPED, NORMALIZED = learning.clipped("clipped_sgd"), learning.normalized("normalized_sgd")


def make(results: SearchResults) -> Reproduction:
    """Two charts per method, with a curve per value, for CIFAR-10 and ResNet20."""
    return panel(results, "CIFAR-10", (OUR_VALUES,))


def panel(results: SearchResults, data: str, differences: tuple[str, ...]) -> Reproduction:
    """Two charts per method, with a curve per value."""
    courses = {family: family.courses(results) for family in (CLIPPED, NORMALIZED)}
    return Reproduction(
        title="How bounds bias training, without noise",
        source=f"Yang, Zhang, Chen, Liu 2022, Figure 1, {data}",
        drawings=(learning.draw(results, (CLIPPED, NORMALIZED)),),
        findings=(
            learning.biased(courses),
            learning.flat_accuracy(courses[CLIPPED], courses[NORMALIZED]),
        ),
        sheets=(learning.learning_rates(results, (CLIPPED, NORMALIZED)),),
        notes=(learning.PUBLIC,),
        differences=differences,
    )


FIGURE = Trained(experiment="a_fig1", make=make)
