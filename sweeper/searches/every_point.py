"""Every point of the plan once: all runs are due at once."""

from __future__ import annotations

from dpsweep.sweeper.searches.open_search import AdmittedOpenSearch


class AdmittedEveryPoint(AdmittedOpenSearch):
    """Every point once."""

    runs = "trials"
    idle = "All {total} trials of this plan are finished; nothing is run or charged."
