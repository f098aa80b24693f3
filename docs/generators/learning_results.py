"""Writes the tables of docs/learning.md, from the results of studies in benchmarks/, whose `table` prints all of each.

python docs/generators/learning_results.py
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "learning.md"
BEGIN, END = "<!-- begin table: python docs/generators/learning_results.py {} -->\n", "<!-- end table -->\n"
SHOWN: Mapping[str, Callable[[str], str]] = {
    "published": lambda table: "\n\n".join(block for block in table.split("\n\n") if "  not run: " not in block),
    "learning_rates": lambda table: re.sub(r"\n  the law of all .*", "", re.sub(r"(?m)^(.{67}\S).*", r"\1", table)),
    "small_changes": str,
    "correlated_noise": lambda table: re.sub(r"(?m)^  [^\[\n]*(\n|\Z)", "", table.partition("\n\n")[2]).rstrip(),
}
"""What the page shows of a table: what was run; of learning rates no columns on laws; of correlated noise the means."""


def insert(page: str) -> str:
    """The page with the table of each study in `benchmarks/`."""
    for study, part in SHOWN.items():
        table = runpy.run_path(str(ROOT / "benchmarks" / f"{study}.py"), run_name="imported")["table"]
        before, begin, rest = page.partition(BEGIN.format(study))
        page = f"{before}{begin}```\n{part(table())}\n```\n{END}{rest.partition(END)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
