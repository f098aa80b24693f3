"""`python -m sweeper OVERRIDES`: the same as `dpsweep sweep OVERRIDES`."""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder: no file in it runs for the sake of its name

from dpsweep.sweeper.commands.hydra_app import main
from dpsweep.sweeper.commands.one_sentence import one_sentence

if __name__ == "__main__":
    with one_sentence():
        main(sys.argv[1:])
