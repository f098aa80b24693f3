"""Writes the tables of docs/learning.md, from the results of studies in benchmarks/.

python docs/generators/learning_results.py
"""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "learning.md"
BEGIN, END = "<!-- begin table: python docs/generators/learning_results.py {} -->\n", "<!-- end table -->\n"
STUDIES = ("published", "learning_rates", "small_changes", "correlated_noise")


def insert(page: str) -> str:
    """The page with the table of each study in `benchmarks/`."""
    for study in STUDIES:
        table = runpy.run_path(str(ROOT / "benchmarks" / f"{study}.py"), run_name="imported")["table"]
        before, begin, rest = page.partition(BEGIN.format(study))
        page = f"{before}{begin}```\n{table()}\n```\n{END}{rest.partition(END)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
