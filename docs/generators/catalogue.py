"""Writes docs/settings.md's table of methods, models and data: a line each, the first sentence of its YAML in conf/.

python docs/generators/catalogue.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpsweep.sweeper.planning.keys import file_header_comment, first_sentence, is_choice_for_papers_alone

ROOT = Path(__file__).parents[2]
GROUPS = {
    **{"trainer": "method", "model": "model", "dataset": "data", "sampler": "sampler"},
    **{"noise": "noise", "clip_schedule": "clip norms"},
}
HEAD, APPENDIX = "| type | what it is |\n|---|---|\n", "For the experiments of papers alone:"
BEGIN, END = "<!-- catalogue: python docs/generators/catalogue.py -->\n", "<!-- end of catalogue -->\n"


def render() -> str:
    """The table, between its marks."""
    appendix = ("\n", f"{APPENDIX}\n\n", HEAD, *_rows(for_papers=True))
    return "".join((BEGIN, HEAD, *_rows(for_papers=False), *appendix, END))


def _rows(*, for_papers: bool) -> Iterator[str]:
    for group in GROUPS:
        for path in sorted((ROOT / "conf" / group).glob("*.yaml")):
            if is_choice_for_papers_alone(group, path.stem) is for_papers:
                yield f"| `{group}={path.stem}` | {first_sentence(file_header_comment(path))} |\n"


def insert(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    return before + render() + rest.partition(END)[2]


if __name__ == "__main__":
    page = ROOT / "docs" / "settings.md"
    page.write_text(insert(page.read_text(encoding="utf-8")), encoding="utf-8")
