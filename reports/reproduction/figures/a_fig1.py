"""Yang et al. 2022, Figure 1: training loss and accuracy of clipped and normalized SGD without noise, over c and r."""

from __future__ import annotations

from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.reproduction import learning_curves as learning
from dpsweep.reports.reproduction.finding import Reproduction, Trained

CLIPPED, NORMALIZED = learning.clipped("clipped_sgd"), learning.normalized("normalized_sgd")


def make(sweep: Sweep) -> Reproduction:
    """Two charts per method, with a curve per value."""
    courses = {family: family.courses(sweep) for family in (CLIPPED, NORMALIZED)}
    return Reproduction(
        title="How bounds bias training, without noise",
        source="Yang, Zhang, Chen, Liu 2022, Figure 1",
        drawings=(learning.draw(sweep, (CLIPPED, NORMALIZED)),),
        findings=(
            learning.biased(courses),
            learning.flat_accuracy(courses[CLIPPED], courses[NORMALIZED]),
        ),
        sheets=(),
        notes=(
            "The values of c and r, and the learning rates, are ours; the paper's text does not give them.",
            learning.PUBLIC,
        ),
    )


FIGURE = Trained(experiment="a_fig1", make=make)
