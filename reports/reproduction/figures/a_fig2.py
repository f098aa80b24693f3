"""Yang et al. 2022, Figure 2: training loss and accuracy of DP-SGD over c and of DP-NSGD over r."""

from __future__ import annotations

from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.reproduction import learning_curves as learning
from dpsweep.reports.reproduction.finding import Reproduction, Trained

CLIPPED, NORMALIZED = learning.clipped("dpsgd"), learning.normalized("dpnsgd")


def make(sweep: Sweep) -> Reproduction:
    """Two charts per method, with a curve per value."""
    courses = {family: family.courses(sweep) for family in (CLIPPED, NORMALIZED)}
    return Reproduction(
        title="How bounds bias private training",
        source="Yang, Zhang, Chen, Liu 2022, Figure 2",
        drawings=(learning.draw(sweep, (CLIPPED, NORMALIZED)),),
        findings=(
            learning.biased(courses),
            learning.flat_accuracy(courses[CLIPPED], courses[NORMALIZED]),
            learning.fluctuates(courses[CLIPPED], courses[NORMALIZED], c=1.0, r=0.01),
        ),
        sheets=(),
        notes=(
            "The values of c and r, and the learning rates, are ours; the paper's text does not give them.",
            learning.PUBLIC,
        ),
    )


FIGURE = Trained(experiment="a_fig2", make=make)
