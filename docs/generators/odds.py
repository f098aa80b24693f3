"""Writes docs/data_protection_officer.md's table of what an epsilon allows, by the program's own sentences.

python docs/generators/odds.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.meaning import Meaning
from dpsweep.accounting.notation import percent_text_rounded_up
from dpsweep.accounting.pricing.price import gaussian_mu
from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile

PAGE = Path(__file__).parents[1] / "data_protection_officer.md"
BEGIN, END = "<!-- odds: python docs/generators/odds.py -->\n", "<!-- end of odds -->\n"
EPSILONS, DELTA = (0.1, 0.5, 1.0, 3.0, 8.0), 1e-5
HEAD = (
    "| epsilon | a conclusion becomes at most so many times as likely | the coin is guessed right at most | with "
    "Gaussian noise on one number |\n|---|---|---|---|\n"
)


def render() -> str:
    """The table, between its marks."""
    return "".join((BEGIN, HEAD, *map(_row, EPSILONS), END))


def insert(page: str) -> str:
    """The page with the table as it is computed."""
    before, _, rest = page.partition(BEGIN)
    return before + render() + rest.partition(END)[2]


def _row(epsilon: float) -> str:
    """The row of an epsilon at the table's delta."""
    total = float(GaussianProfile(mu=gaussian_mu(epsilon, DELTA)).delta(np.zeros(1))[0])
    any_mechanism, gaussian = (
        Meaning(guarantee=Guarantee(epsilon=epsilon, delta=DELTA, unit="person"), total_variation=one)
        for one in (None, total)
    )
    shares = (percent_text_rounded_up(one.largest_share_of_right_guesses) for one in (any_mechanism, gaussian))
    return f"| {epsilon:g} | {any_mechanism.factor_text()} | {' | '.join(f'{share} %' for share in shares)} |\n"


if __name__ == "__main__":
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
