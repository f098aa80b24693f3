"""The Hydra application behind `dpsweep sweep` and `dpsweep plan`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import hydra

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.commands.command_words import options_first, prepared
from dpsweep.sweeper.commands.hydra_door import refuse_job, refuse_words

CONF = Path(__file__).resolve().parents[2] / "conf"


def main(arguments: Sequence[str]) -> None:
    """Runs Hydra on these overrides; call it within `one_sentence`."""
    words = prepared(arguments)
    _refuse_spaces(arguments)
    refuse_words(arguments)
    sys.argv = [sys.argv[0], *options_first(words)]
    hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(refuse_job)()


def _refuse_spaces(arguments: Sequence[str]) -> None:
    for argument in arguments:
        if argument.endswith(",") and "=" in argument:
            raise BadInput(
                f"Expected {argument} to go on after its comma: write values without spaces, as in lr=0.1,0.2."
            )
