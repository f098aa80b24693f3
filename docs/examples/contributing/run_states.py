"""How many runs of each method came to which end."""

from __future__ import annotations

from dpsweep.reports.content.facts import RESULTS
from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit


def run_states(sweep: Sweep) -> Exhibit | None:
    """A table of methods and the states of their runs; None where nothing ran."""
    counts = sweep.table.groupby(["method", "state"], sort=False).size()
    if not len(counts):
        return None
    rows = tuple(
        (Item(text=method_label(str(method))), Item(text=str(state)), Item(text=str(count), key=float(count)))
        for (method, state), count in counts.items()
    )
    return Exhibit(
        key="run_states",
        title="How runs ended",
        note="A run that diverged or failed is paid for like any other.",
        source=RESULTS,
        sheets=(Sheet(caption="Runs by method and state", columns=("method", "state", "runs"), rows=rows),),
    )
