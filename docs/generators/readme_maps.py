"""Writes the maps that README shows, docs/first_map.png and docs/three_methods.png, by the commands beside them.

    python docs/generators/readme_maps.py [FOLDER]

Both sweeps run in a folder and on a ledger of their own, which takes a minute. FOLDER holds MNIST's official files;
without it they are fetched.
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
COMMAND = re.compile(r'^`make sweep DATASET=(\w+) ARGS="([^"]+)"`$', re.MULTILINE)
WIDEST, COLOURS = 1400, 128


def commands() -> dict[str, list[str]]:
    """The words of README's two sweeps, by the name of their picture."""
    found = COMMAND.search((DOCS.parent / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    return {"first_map": [], "three_methods": [f"dataset={found[1]}", *shlex.split(found[2])]}


def main(*folder: str) -> None:
    """Runs the sweeps and writes their maps, no wider than a page."""
    for name, words in commands().items():
        with tempfile.TemporaryDirectory() as room:
            homes = {f"XDG_{kind}_HOME": f"{room}/{kind.lower()}" for kind in ("STATE", "CONFIG", "DATA")}
            own = {"DPSWEEP_LEDGER": f"{room}/ledger.sqlite", "DPSWEEP_KEY": f"{room}/key", **homes}
            data = [f"data={Path(one).resolve()}" for one in folder if words]
            command = [sys.executable, "-P", "-m", "dpsweep", "sweep", *words, *data]
            subprocess.run(command, cwd=room, env=os.environ | own, check=True)
            (drawn,) = Path(room).glob("sweeps/*/*/curator/heatmap.png")
            with Image.open(drawn) as picture:
                plain = picture.convert("RGB")
                plain.thumbnail((WIDEST, WIDEST))
                plain.quantize(COLOURS).save(DOCS / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
