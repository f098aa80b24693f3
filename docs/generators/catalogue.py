"""Writes docs/settings.md's table of methods, models and data: a line each, the first sentence of its YAML in conf/.

python docs/generators/catalogue.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpsweep.sweeper.planning.keys import file_header_comment, first_sentence

ROOT = Path(__file__).parents[2]
GROUPS = {
    **{"trainer": "method", "model": "model", "dataset": "data", "sampler": "sampler"},
    **{"noise": "noise", "clip_schedule": "clip norms"},
}
BEGIN, END = "<!-- catalogue: python docs/generators/catalogue.py -->\n", "<!-- end of catalogue -->\n"


def render() -> str:
    """The table, between its marks."""
    return "".join((BEGIN, "| type | what it is |\n|---|---|\n", *_rows(), END))


def _rows() -> Iterator[str]:
    for group in GROUPS:
        for path in sorted((ROOT / "conf" / group).glob("*.yaml")):
            yield f"| `{group}={path.stem}` | {first_sentence(file_header_comment(path))} |\n"


def insert(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    return before + render() + rest.partition(END)[2]


if __name__ == "__main__":
    page = ROOT / "docs" / "settings.md"
    page.write_text(insert(page.read_text(encoding="utf-8")), encoding="utf-8")
