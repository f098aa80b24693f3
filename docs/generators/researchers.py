"""Writes the table of docs/scaling.md on many researchers and one ledger, from benchmarks/ledger.jsonl.

python docs/generators/researchers.py
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE, RESULTS = ROOT / "docs" / "scaling.md", ROOT / "benchmarks" / "ledger.jsonl"
BEGIN, END = "<!-- begin researchers: python docs/generators/researchers.py -->\n", "<!-- end researchers -->\n"
HEADER = """| researchers at one instant | s to verify | s to charge, median | slowest | refused |
|---|---|---|---|---|"""
COLUMNS = ("researchers", "verified", "charged", "slowest", "refused")


def insert(page: str) -> str:
    """The page with the table of what was measured."""
    found = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    rows = [f"| {' | '.join(f'{line[name]:.3g}' for name in COLUMNS)} |" for line in found]
    (lines,) = {line["lines"] for line in found}
    table = "\n".join((f"The ledger had {lines} charges before.", "", HEADER, *rows))
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{table}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
