"""Writes docs/settings.md's table of methods, models and data: a line each, the first sentence of its YAML in conf/.

python docs/catalogue.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
GROUPS = {
    **{"trainer": "method", "model": "model", "dataset": "data", "sampler": "sampler"},
    "clip_schedule": "clip norms",
}
BEGIN, END = "<!-- catalogue: python docs/catalogue.py -->\n", "<!-- end of catalogue -->\n"


def render() -> str:
    """The table, between its marks."""
    return "".join((BEGIN, "| type | what it is |\n|---|---|\n", *_rows(), END))


def _rows() -> Iterator[str]:
    for group in GROUPS:
        for path in sorted((ROOT / "conf" / group).glob("*.yaml")):
            yield f"| `{group}={path.stem}` | {meaning(path)} |\n"


def meaning(path: Path) -> str:
    """The first sentence of a YAML's comment: what it is, and the paper that it is from."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = []
    for line in lines[lines[0] == "# @package _global_" :]:
        if not line.startswith("# "):
            break
        comment.append(line.removeprefix("# "))
    text = " ".join(comment)
    return re.split(r"(?<=[^.]{2}\.) (?=[A-Z])", re.sub(r"\bet al\.", "et al", text), maxsplit=1)[0].replace(
        "et al", "et al."
    )


def insert(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    return before + render() + rest.partition(END)[2]


if __name__ == "__main__":
    page = ROOT / "docs" / "settings.md"
    page.write_text(insert(page.read_text(encoding="utf-8")), encoding="utf-8")
