"""Writes docs/three_methods.png: the maps of the command that README shows for three methods, in one picture.

    python docs/generators/three_methods.py

It runs that command in a folder and on a ledger of its own, which takes half a minute.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parents[1]
PICTURE = DOCS / "three_methods.png"
COMMAND = re.compile(r'^`make sweep ARGS="(trainer=\w+(?:,\w+){2} [^"]+)"`$', re.MULTILINE)
WIDEST, COLOURS = 1400, 64


def words() -> list[str]:
    """The words of README's command."""
    found = COMMAND.search((DOCS.parent / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    return shlex.split(found[1])


def main() -> None:
    """Runs the sweep and writes its map, no wider than a page."""
    with tempfile.TemporaryDirectory() as room:
        homes = {f"XDG_{kind}_HOME": f"{room}/{kind.lower()}" for kind in ("STATE", "CONFIG", "DATA")}
        own = {"DPSWEEP_LEDGER": f"{room}/ledger.sqlite", "DPSWEEP_KEY": f"{room}/key", **homes}
        command = [sys.executable, "-P", "-m", "dpsweep", "sweep", *words()]
        subprocess.run(command, cwd=room, env=os.environ | own, check=True)
        (drawn,) = Path(room).glob("sweeps/*/*/curator/heatmap.png")
        with Image.open(drawn) as picture:
            picture.convert("RGB").resize((WIDEST, round(picture.height * WIDEST / picture.width))).quantize(
                COLOURS
            ).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
