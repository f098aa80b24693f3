"""Writes the gallery of docs/reproduction.md: every figure's picture, claims, numbers and verdicts, as they came out.

python docs/gallery.py REPRODUCTIONS

REPRODUCTIONS is where `make reproduce` wrote figures, at scale=small where they need training. A figure that is not
there keeps what the page has of it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from dpsweep.reports.reproduction.finding import Trained, find, known

DOCS = Path(__file__).parent
PAGE, PICTURES = DOCS / "reproduction.md", DOCS / "figures"
BEGIN, END = "<!-- gallery: python docs/gallery.py reproductions -->\n", "<!-- end of gallery -->\n"
WIDEST, COLOURS = 1400, 64


def gallery(folders: dict[str, Path], page: str) -> str:
    """The gallery between its marks: each figure of its folder, or else as the page has it."""
    former = sections(page)
    figures = (
        "".join(_figure(name, json.loads((folders[name] / "findings.json").read_text())))
        if name in folders
        else former[name]
        for name in known()
    )
    return "".join((BEGIN, "\n## What came out\n", *figures, "\n", END))


def sections(page: str) -> dict[str, str]:
    """The page's sections of the gallery by figure."""
    made = page.partition(BEGIN)[2].partition(END)[0].rstrip("\n") + "\n"
    return {found[2]: found[1] for found in re.finditer(r"(\n### `(\w+)`.*?\n)(?=\n### |\Z)", made, re.DOTALL)}


def folders(root: Path) -> dict[str, Path]:
    """The figures that were made below this folder; small ones where a figure needs training."""
    every = {name: root / name / "small" if isinstance(find(name), Trained) else root / name for name in known()}
    return {name: folder for name, folder in every.items() if (folder / "findings.json").is_file()}


def copy(folders: dict[str, Path]) -> None:
    """Keeps the pictures beside the page, in few colours."""
    PICTURES.mkdir(exist_ok=True)
    for name, folder in folders.items():
        with Image.open(folder / "figure.png") as picture:
            ratio = min(1.0, WIDEST / picture.width)
            size = round(picture.width * ratio), round(picture.height * ratio)
            small = picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
            small.quantize(COLOURS).save(PICTURES / f"{name}.png", optimize=True)


def insert(page: str, made: str) -> str:
    """The page with this gallery."""
    before, _, rest = page.partition(BEGIN)
    return before + made + rest.partition(END)[2]


def _figure(name: str, said: dict[str, Any]) -> Iterator[str]:
    scale = ", `SCALE=small`" if isinstance(find(name), Trained) else ""
    yield f"\n### `{name}`: {said['title']}\n\n{said['source']}{scale}\n\n"
    yield f"![{said['title']}](figures/{name}.png)\n\n| claim | numbers | verdict |\n|---|---|---|\n"
    for one in said["findings"]:
        verdict = f"{one['verdict']} {one['scope']}".strip()
        cells = (_cell(one["claim"]), _cell(one["numbers"]), f"**{verdict}**")
        yield f"| {' | '.join(cells)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    found = folders(Path(sys.argv[1]))
    copy(found)
    written = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(insert(written, gallery(found, written)), encoding="utf-8")
