"""Hyperparameter sweeps over private training, priced as a whole.

`plan`, `rehearse`, `sweep`, `results`, `report` and `release` are the verbs of the command line as functions (docs/notebook.md), `heatmap`
draws results from elsewhere, and `attempt` lets a script of the user's train a trial. `dpsweep.accounting` is a library of its own:
events, accountants, selection rules, the ledger. `dpsweep.models` makes a torch model trainable with privacy. The folders
here are links to those beside it, so that a checkout and an installed package are imported by the same names.
"""

from importlib import import_module
from typing import Any

_HOME_OF = {
    "Attempt": "dpsweep.trainers.scripts.attempt",
    "TrainerState": "dpsweep.trainers.scripts.reported_events",
    "attempt": "dpsweep.trainers.scripts.attempt",
    "PlannedSweep": "dpsweep.sweeper.commands.python_api",
    "SweepResults": "dpsweep.sweeper.commands.python_api",
    "heatmap": "dpsweep.reports.figures.heatmap",
    "plan": "dpsweep.sweeper.commands.python_api",
    "rehearse": "dpsweep.sweeper.commands.python_api",
    "release": "dpsweep.sweeper.commands.python_api",
    "report": "dpsweep.sweeper.commands.python_api",
    "results": "dpsweep.sweeper.commands.python_api",
    "sweep": "dpsweep.sweeper.commands.python_api",
}
"""Public names by the module that each is loaded from on first use."""

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Loads a public name on first use, so that `import dpsweep` itself stays fast."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
