"""Refusal of Hydra's other ways to run a job: each is refused in one sentence before any job runs.

A job never trains without the receipt of a charge, however it was started (`sweeper/job/block_job.py`). The job itself
would also refuse, but its message would stand among Hydra's own output. Hydra drops the exceptions of callbacks and
prints more about those of tasks, except for `SystemExit`; so the sentence is raised in a `SystemExit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep
from hydra.errors import OverrideParseException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from dpsweep.accounting.errors import BadInput, DpsweepError, NoReceipt
from dpsweep.sweeper.commands.experiment_scale import ROOT

SWEEPER = "hydra_plugins.honest_sweeper.HonestSweeper"

FILLED_IN = frozenset({"block", "part", "parts", "plan.id"})
"""The keys that the sweeper fills in for its jobs and for the plan's name; no sweep configuration has them."""

RERUN = "--experimental-rerun"
"""Hydra's flag that runs a job from a file; Hydra instantiates the file's objects before any check."""

CALLBACKS = "hydra.callbacks"

_OUTSIDE = (
    "Nothing trains outside a charged sweep: start one with `dpsweep sweep` (no hydra.mode=RUN, no other "
    "hydra/sweeper)."
)


class OnlySweeps(Callback):
    """Refuses jobs outside a sweep, and sweeps with a sweeper other than dpsweep's."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Always refuses."""
        _leave(NoReceipt(_OUTSIDE))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Refuses every sweeper except dpsweep's."""
        if config.hydra.sweeper.get("_target_") != SWEEPER:
            _leave(NoReceipt(_OUTSIDE))


def refuse_job(config: DictConfig) -> NoReturn:
    """The task of jobs that Hydra starts without dpsweep's sweeper, which uses its own task instead."""
    _leave(NoReceipt(_OUTSIDE))


def refuse_words(arguments: Sequence[str]) -> None:
    """Raises `BadInput` for keys that the sweeper fills in, and for options that bypass it before a callback runs.

    A group's option that is no name is refused as well (`features=null`, `model=3`).
    """
    for argument in arguments:
        word = argument.partition("=")[0]
        if word.lstrip("~+") in FILLED_IN:
            raise BadInput(f"Expected {argument} to be left out: the sweeper fills it in.")
        if len(word) > len("--") and RERUN.startswith(word):  # argparse completes unique prefixes
            raise BadInput(f"Expected {word} to be left out: nothing trains from a file that Hydra has stored.")
        if word.lstrip("~+") == CALLBACKS or word.lstrip("~+").startswith(f"{CALLBACKS}.door"):
            raise BadInput(f"Expected {word} to be left out: it refuses jobs outside a charged sweep.")
        _refuse_unnamed_option(argument, word)


def _refuse_unnamed_option(argument: str, group: str) -> None:
    """Hydra has no sentence for an option that its grammar reads as no string."""
    options = sorted(file.stem for file in (ROOT / "conf" / group.lstrip("+")).glob("*.yaml"))
    if not group or "=" not in argument or not options:
        return
    try:
        value = OverridesParser.create().parse_override(argument).value()
    except OverrideParseException:
        return  # Hydra says what it expects instead
    named = value.list if isinstance(value, ChoiceSweep) else [value]
    if any(not option or isinstance(option, int | float) for option in named):
        raise BadInput(f"Expected {argument} to be one of {', '.join(options)}.")


def _leave(error: DpsweepError) -> NoReturn:
    raise SystemExit(error)
