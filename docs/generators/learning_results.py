"""Writes the table of docs/learning.md, from benchmarks/published.jsonl.

python docs/generators/learning_results.py
"""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "learning.md"
BEGIN, END = "<!-- begin table: python docs/generators/learning_results.py -->\n", "<!-- end table -->\n"
BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "published.py"), run_name="imported")


def insert(page: str) -> str:
    """The page with the table of what was trained."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}```\n{BENCHMARK['table']()}\n```\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
