"""Translation of the command line for Hydra: options first, and dpsweep's own words as Hydra overrides."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from hydra._internal.utils import get_args_parser

from dpsweep.accounting.names.stored_classes import SCRIPT
from dpsweep.sweeper.commands.experiment_scale import ROOT, scaled
from dpsweep.sweeper.coordinator.signals import AGAIN, REPEAT_ALL
from dpsweep.sweeper.keys.environment import decoded

MULTIRUN = "--multirun"
"""Hydra's option for sweeps, which every command gets unless it asks for another mode."""

TRAINERS = ROOT / "conf" / "trainer"

_AXES = re.compile(r"grid\.axes(\.(?P<trainer>\w+))?=.*", re.DOTALL)
_COLUMNS = re.compile(r"dataset\.(bounds|categories)=\{.*", re.DOTALL)
_OTHER_MODES = ("run", "multirun", "cfg", "info", "shell_completion", "help", "hydra_help", "experimental_rerun")


def prepared(arguments: Sequence[str]) -> list[str]:
    """The overrides and options of a command line in Hydra's form; raises `BadInput` if they are inconsistent.

    `script=` is short for `trainer.script=`.

    Axes may be given to any trainer, also to one without axes in the grid, since another trainer may run beside it.
    Columns may be declared that the data set's file does not name.

    >>> prepared(["--again", "grid.axes.dpsgd={steps: [3]}", "dataset.bounds={age: [0, 90]}"])
    ['hydra.sweeper.retry=all', '++grid.axes.dpsgd={steps: [3]}', '++dataset.bounds={age: [0, 90]}']
    """
    words = (REPEAT_ALL if word == AGAIN else decoded(_with_group(word)) for word in scaled(arguments))
    return [f"++{word}" if _gives_axes(word) or _COLUMNS.fullmatch(word) else word for word in words]


def options_first(words: Sequence[str]) -> list[str]:
    """The arguments with all of Hydra's options (`--config-dir X`) before the overrides, and with `--multirun`.

    Hydra accepts options before or after the overrides, but not both, and none between them. Without `--multirun`,
    Hydra reports a wrong choice as an error about the lists.

    >>> options_first(["dataset=mine", "--config-dir", "my", "steps=3"])
    ['--config-dir', 'my', '--multirun', 'dataset=mine', 'steps=3']
    """
    namespace = get_args_parser().parse_intermixed_args(list(words))
    waiting = deque(namespace.overrides)
    options, overrides = [], []
    for word in words:
        if waiting and word == waiting[0]:
            overrides.append(waiting.popleft())
        else:
            options.append(word)
    if not any(getattr(namespace, mode) for mode in _OTHER_MODES) and not any(
        word.startswith("hydra.mode") for word in overrides
    ):
        options.append(MULTIRUN)
    return [*options, *overrides]


def _with_group(word: str) -> str:
    """`script=train.py`, which has no group of its own, as a field of the trainer."""
    return f"trainer.{word}" if word.startswith(f"{SCRIPT}=") else word


def _gives_axes(word: str) -> bool:
    """Whether an argument gives axes to a trainer of conf/, or to several."""
    parts = _AXES.fullmatch(word)
    return parts is not None and (parts["trainer"] is None or Path(TRAINERS / f"{parts['trainer']}.yaml").is_file())
