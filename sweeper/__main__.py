"""`python -m sweeper OVERRIDES`: the same as `dpsweep sweep OVERRIDES`."""

from __future__ import annotations

import sys

from dpsweep.sweeper.commands.hydra_app import main
from dpsweep.sweeper.commands.one_sentence import one_sentence

if __name__ == "__main__":
    with one_sentence():
        main(sys.argv[1:])
