"""Hyperparameter sweeps over private training, priced as a whole.

`plan`, `rehearse`, `sweep`, `results`, `report` and `release` are the verbs of the command line as functions (docs/notebook.md), `heatmap`
draws results from elsewhere, and `attempt` lets a script of the user's train a trial. `dpsweep.accounting` is a library of its own:
events, accountants, selection rules, the ledger. `dpsweep.models` makes a torch model trainable with privacy. The folders
here are links to those beside it, so that a checkout and an installed package are imported by the same names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; a program loads each name on first use
    from dpsweep import accounting as accounting
    from dpsweep import models as models
    from dpsweep.reports.figures.heatmap import heatmap as heatmap
    from dpsweep.sweeper.commands.python_api import PlannedSweep as PlannedSweep
    from dpsweep.sweeper.commands.python_api import SweepResults as SweepResults
    from dpsweep.sweeper.commands.python_api import plan as plan
    from dpsweep.sweeper.commands.python_api import rehearse as rehearse
    from dpsweep.sweeper.commands.python_api import release as release
    from dpsweep.sweeper.commands.python_api import report as report
    from dpsweep.sweeper.commands.python_api import results as results
    from dpsweep.sweeper.commands.python_api import sweep as sweep
    from dpsweep.trainers.scripts.attempt import Attempt as Attempt
    from dpsweep.trainers.scripts.attempt import attempt as attempt
    from dpsweep.trainers.scripts.reported_events import TrainerState as TrainerState

_HOMES = {
    "reports.figures.heatmap": "heatmap",
    "sweeper.commands.python_api": "PlannedSweep SweepResults plan rehearse release report results sweep",
    "trainers.scripts.attempt": "Attempt attempt",
    "trainers.scripts.reported_events": "TrainerState",
}
"""The module that public names are loaded from on first use."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)


if not TYPE_CHECKING:  # so that a type checker finds a misspelt name

    def __getattr__(name: str) -> Any:
        """Loads a public name or library on first use, so that `import dpsweep` itself stays fast."""
        if name in ("accounting", "models"):
            return import_module(f"{__name__}.{name}")
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__, "accounting", "models"]
