"""Runs the plans that pages show, and writes their output below the commands.

python docs/generators/examples.py

A page marks an example by `<!-- example: dpsweep plan ARGUMENTS -->`. Plans are made by the program itself, in a folder
of its own, a copy of docs/examples/your_data, and with an account of its own, so that no ledger of the user's changes
them. A plan's estimated time is that of the machine that ran this script; a test compares everything else.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "docs" / "tutorial.md", ROOT / "docs" / "first_data.md")
BEGIN, END = "<!-- example: dpsweep ", "<!-- end of example -->"
EXAMPLE = re.compile(
    rf"{BEGIN}(?P<arguments>[^\n]*) -->\n```console\n(?P<command>\$ [^\n]*)\n(?P<output>.*?)```\n{END}", re.S
)
WIDTH = "80"


def examples(page: str) -> Iterator[tuple[str, str]]:
    """The arguments of each example of a page, and the output that the page shows."""
    yield from ((match["arguments"], match["output"]) for match in EXAMPLE.finditer(page))


def output(arguments: str) -> str:
    """What `dpsweep ARGUMENTS` prints on a machine that has no ledger yet."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "docs" / "examples" / "your_data", folder, dirs_exist_ok=True)
        own = {f"XDG_{kind}_HOME": f"{folder}/{kind.lower()}" for kind in ("STATE", "CONFIG", "DATA")}
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DPSWEEP_")}
        done = subprocess.run(
            [sys.executable, "-m", "dpsweep", *shlex.split(arguments)],
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
            env=kept | own | {"COLUMNS": WIDTH, "PYTHONPATH": str(ROOT)},
        )
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def timeless(shown: str) -> str:
    """The output without the time, which depends on the machine."""
    return "".join(line for line in shown.splitlines(keepends=True) if not line.startswith(("│time ", "time: ")))


def insert(page: str, outputs: dict[str, str]) -> str:
    """The page with these outputs, by their arguments."""
    return EXAMPLE.sub(
        lambda match: (
            f"{BEGIN}{match['arguments']} -->\n```console\n{match['command']}\n{outputs[match['arguments']]}```\n{END}"
        ),
        page,
    )


if __name__ == "__main__":
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES}
    made = {arguments: output(arguments) for arguments in {one for text in texts.values() for one, _ in examples(text)}}
    for path, text in texts.items():
        path.write_text(insert(text, made), encoding="utf-8")
