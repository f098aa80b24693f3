"""What Hydra is told for what was typed: options first, and words that only we know as overrides that Hydra knows."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from hydra._internal.utils import get_args_parser

from dpsweep.sweeper.commands.experiment_scale import ROOT, scaled
from dpsweep.sweeper.coordinator.signals import AGAIN, REPEAT_ALL
from dpsweep.sweeper.planning.former_words import renamed

TRAINERS = ROOT / "conf" / "trainer"

_AXES = re.compile(r"grid\.axes(\.(?P<trainer>\w+))?=.*", re.DOTALL)
_OTHER_MODES = ("run", "multirun", "cfg", "info", "shell_completion", "help", "hydra_help", "experimental_rerun")


def prepared(arguments: Sequence[str]) -> list[str]:
    """The overrides and options of a command line as Hydra takes them; raises `BadInput` where they do not fit.

    Axes are given to a trainer also where the grid shows none for it, because another trainer runs beside it.

    >>> prepared(["--again", "grid.axes.dpsgd={steps: [3]}"])
    ['hydra.sweeper.retry=all', '++grid.axes.dpsgd={steps: [3]}']
    """
    words = (REPEAT_ALL if word == AGAIN else renamed(word) for word in scaled(arguments))
    return [f"++{word}" if _gives_axes(word) else word for word in words]


def options_first(words: Sequence[str]) -> list[str]:
    """The words with Hydra's options (`--config-dir X`) before the overrides, wherever they stood, and `--multirun`.

    Hydra itself takes options before overrides or after them, not both, and no option between. Without `--multirun` it
    complains, where a choice is wrong, about the lists instead.

    >>> options_first(["dataset=mine", "--config-dir", "my", "steps=3"])
    ['--config-dir', 'my', '--multirun', 'dataset=mine', 'steps=3']
    """
    given = get_args_parser().parse_intermixed_args(list(words))
    waiting = deque(given.overrides)
    options, overrides = [], []
    for word in words:
        if waiting and word == waiting[0]:
            overrides.append(waiting.popleft())
        else:
            options.append(word)
    if not any(getattr(given, mode) for mode in _OTHER_MODES) and not any(
        word.startswith("hydra.mode") for word in overrides
    ):
        options.append("--multirun")
    return [*options, *overrides]


def _gives_axes(word: str) -> bool:
    """Whether a word gives axes to a trainer of conf/, or to several."""
    parts = _AXES.fullmatch(word)
    return parts is not None and (parts["trainer"] is None or Path(TRAINERS / f"{parts['trainer']}.yaml").is_file())
