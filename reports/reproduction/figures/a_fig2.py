"""Yang et al. 2022, Figure 2: training loss and accuracy of DP-SGD over c and of DP-NSGD over r."""

from __future__ import annotations

from dpsweep.reports.reproduction import learning_curves as learning
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.results.differences import OUR_VALUES
from dpsweep.reports.reproduction.results.search_results import SearchResults

CLIPPED, NORMALIZED = learning.clipped("dpsgd"), learning.normalized("dpnsgd")


def make(results: SearchResults) -> Reproduction:
    """Two charts per method, with a curve per value, for CIFAR-10 and ResNet20."""
    return panel(results, "CIFAR-10", (OUR_VALUES,))


def panel(results: SearchResults, data: str, differences: tuple[str, ...]) -> Reproduction:
    """Two charts per method, with a curve per value."""
    courses = {family: family.courses(results) for family in (CLIPPED, NORMALIZED)}
    return Reproduction(
        title="How bounds bias private training",
        source=f"Yang, Zhang, Chen, Liu 2022, Figure 2, {data}",
        drawings=(learning.draw(results, (CLIPPED, NORMALIZED)),),
        findings=(
            learning.biased(courses),
            learning.flat_accuracy(courses[CLIPPED], courses[NORMALIZED]),
            learning.fluctuates(courses[CLIPPED], courses[NORMALIZED], c=1.0, r=0.01),
        ),
        sheets=(learning.learning_rates(results, (CLIPPED, NORMALIZED)),),
        notes=(learning.PUBLIC,),
        differences=differences,
    )


FIGURE = Trained(experiment="a_fig2", make=make)
