"""The one way in: Hydra's other ways to run a job are refused before any job runs, in one sentence.

Nothing trains without the receipt of a charge, whoever starts a job (`sweeper/job/block_job.py`). What is refused here
would have ended there, among lines of Hydra's own. Hydra drops what a callback raises, and prints more about what a
task raises, unless it is `SystemExit`; so the sentence leaves in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from dpsweep.accounting.errors import BadInput, DpsweepError, NoReceipt

SWEEPER = "hydra_plugins.honest_sweeper.HonestSweeper"

FILLED_IN = frozenset({"block", "part", "parts", "plan.id"})
"""What the sweeper tells its jobs, and calls the plan; no configuration of a sweep has these keys."""

RERUN = "--experimental-rerun"
"""Hydra's flag that runs a job from a file, whose objects it makes before anybody has looked at them."""

CALLBACKS = "hydra.callbacks"

_OUTSIDE = (
    "Nothing trains outside a charged sweep: start one with `python -m sweeper` (no hydra.mode=RUN, no other "
    "hydra/sweeper)."
)


class OnlySweeps(Callback):
    """Refuses to run a job by itself, and to sweep by another sweeper than ours."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Always refuses."""
        _leave(NoReceipt(_OUTSIDE))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Refuses another sweeper."""
        if config.hydra.sweeper.get("_target_") != SWEEPER:
            _leave(NoReceipt(_OUTSIDE))


def refuse_job(config: DictConfig) -> NoReturn:
    """The task of jobs that Hydra starts without our sweeper, which has a task of its own."""
    _leave(NoReceipt(_OUTSIDE))


def refuse_words(arguments: Sequence[str]) -> None:
    """Raises `BadInput` for what the sweeper fills in, and for what goes round it before a callback can refuse it."""
    for argument in arguments:
        word = argument.partition("=")[0]
        if word.lstrip("~+") in FILLED_IN:
            raise BadInput(f"Expected {argument} to be left out: the sweeper fills it in.")
        if len(word) > len("--") and RERUN.startswith(word):  # argparse completes what is unique
            raise BadInput(f"Expected {word} to be left out: nothing trains from a file that Hydra has stored.")
        if word.lstrip("~+") == CALLBACKS or word.lstrip("~+").startswith(f"{CALLBACKS}.door"):
            raise BadInput(f"Expected {word} to be left out: it refuses jobs outside a charged sweep.")


def _leave(error: DpsweepError) -> NoReturn:
    raise SystemExit(error)
