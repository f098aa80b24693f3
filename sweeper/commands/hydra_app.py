"""The Hydra application behind `dpsweep sweep` and `dpsweep plan`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import hydra
from hydra._internal.hydra import Hydra
from hydra.types import RunMode

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.commands.command_words import MULTIRUN, options_first, prepared
from dpsweep.sweeper.commands.hydra_door import refuse_job, refuse_words
from dpsweep.sweeper.commands.readable_files import files_by_name
from dpsweep.trainers.user_modules import find_user_modules

CONF = Path(__file__).resolve().parents[2] / "conf"


def main(arguments: Sequence[str]) -> None:
    """Runs Hydra on these overrides; call it within `one_sentence`."""
    words = prepared(arguments)
    _refuse_spaces(arguments)
    refuse_words(arguments)
    words = options_first(words)
    sys.argv = [sys.argv[0], *words]
    find_user_modules(Path.cwd())
    os.environ["PYTHONSAFEPATH"] = "1"  # child processes never look for modules in the current folder
    with files_by_name(), _known_mode() if MULTIRUN in words else nullcontext():
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(refuse_job)()


@contextmanager
def _known_mode() -> Iterator[None]:
    """Within it Hydra takes the mode from `--multirun`; it would compose a whole configuration to read it there."""
    asks = Hydra.get_mode
    Hydra.get_mode = lambda *_, **__: RunMode.MULTIRUN  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_mode = asks  # type: ignore[method-assign]


def _refuse_spaces(arguments: Sequence[str]) -> None:
    for argument in arguments:
        if argument.endswith(",") and "=" in argument:
            raise BadInput(
                f"Expected {argument} to go on after its comma: write values without spaces, as in lr=0.1,0.2."
            )
