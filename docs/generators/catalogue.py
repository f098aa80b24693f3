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
HEAD = "| type | what it is |\n|---|---|\n"
APPENDIX = "For the experiments of papers alone, explained by `dpsweep help`: "
BEGIN, END = "<!-- catalogue: python docs/generators/catalogue.py -->\n", "<!-- end of catalogue -->\n"


def render() -> str:
    """The table, and the names that only papers use, between their marks."""
    rows = (f"| `{name}` | {first_sentence(file_header_comment(path))} |\n" for name, path in _files(for_papers=False))
    names = ", ".join(f"`{name}`" for name, _ in _files(for_papers=True))
    return "".join((BEGIN, HEAD, *rows, f"\n{APPENDIX}{names}.\n", END))


def _files(*, for_papers: bool) -> Iterator[tuple[str, Path]]:
    for group in GROUPS:
        for path in sorted((ROOT / "conf" / group).glob("*.yaml")):
            if is_choice_for_papers_alone(group, path.stem) is for_papers:
                yield f"{group}={path.stem}", path


def insert(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    return before + render() + rest.partition(END)[2]


if __name__ == "__main__":
    page = ROOT / "docs" / "settings.md"
    page.write_text(insert(page.read_text(encoding="utf-8")), encoding="utf-8")
