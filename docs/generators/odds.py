"""Writes docs/data_protection_officer.md's table of what an epsilon allows, rounded up.

python docs/generators/odds.py
"""

from __future__ import annotations

import math
from pathlib import Path

PAGE = Path(__file__).parents[1] / "data_protection_officer.md"
BEGIN, END = "<!-- odds: python docs/generators/odds.py -->\n", "<!-- end of odds -->\n"
EPSILONS = (0.1, 0.5, 1.0, 3.0, 8.0)


def render() -> str:
    """The table, between its marks."""
    rows = (f"| {epsilon:g} | {_up(math.exp(epsilon)):,g} |\n" for epsilon in EPSILONS)
    return "".join((BEGIN, "| epsilon | odds change by a factor of at most |\n|---|---|\n", *rows, END))


def insert(page: str) -> str:
    """The page with the table as it is computed."""
    before, _, rest = page.partition(BEGIN)
    return before + render() + rest.partition(END)[2]


def _up(factor: float) -> float:
    """Rounded up to three digits."""
    digits = 2 - math.floor(math.log10(factor))
    return math.ceil(factor * 10**digits) / 10**digits


if __name__ == "__main__":
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
