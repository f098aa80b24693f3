"""Default learning rates as functions of the noise: what `trainer.lr=auto` stands for.

The best learning rate of a method falls where the noise in its gradients grows. A law is measured on data declared
public (docs/learning.md) and fixed in the code: a rate follows from declared numbers alone, so it costs no privacy.
A plan stores the number, never the word.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from dpsweep.accounting.errors import BadInput

DIGITS = 3
"""Significant digits of a rate that a law finds."""

_WORD = re.compile(r"auto(?:\*(?P<factor>[0-9.eE+-]+))?")


@dataclass(frozen=True, kw_only=True)
class RateLaw:
    """The learning rate first * x ** exponent * d ** weights_exponent, at most `most`, with x = B / (s sqrt(T)).

    B is the size of batches, T the number of steps, s the standard deviation of the noise in each number of a sum, and
    d the number of weights. An exponent of 0 is a fixed rate.
    Source: of the form, Yang, Zhang, Chen, Liu 2022, Theorem 3.2; of the numbers, `benchmarks/learning_rates.py`, and
    `benchmarks/recipes.py` for averaged weights.

    >>> law = RateLaw(first=0.5, exponent=0.5, most=4.0)
    >>> [law.rate(noise_std=s, batch_size=1000, steps=100) for s in (1.0, 25.0, 100.0)]
    [4.0, 1.0, 0.5]
    """

    first: float
    exponent: float = 0.0
    weights_exponent: float = 0.0
    most: float = math.inf

    def rate(self, *, noise_std: float, batch_size: int, steps: int, weights: int = 1) -> float:
        """The rate at this noise, rounded; without noise it is the largest."""
        x = batch_size / (noise_std * math.sqrt(steps)) if noise_std else math.inf
        rate = self.first * x**self.exponent * max(1, weights) ** self.weights_exponent
        return float(f"{min(self.most, rate):.{DIGITS}g}")


def factor_of_automatic_rate(value: object) -> float | None:
    """The factor in `auto*0.5`, 1 for `auto`; None for anything that does not begin with the word.

    >>> factor_of_automatic_rate("auto"), factor_of_automatic_rate("auto*0.5"), factor_of_automatic_rate(0.5)
    (1.0, 0.5, None)
    """
    if not isinstance(value, str) or not value.startswith("auto"):
        return None
    word = _WORD.fullmatch(value)
    try:
        factor = float(word["factor"] or 1) if word else math.nan
    except ValueError:
        factor = math.nan
    if not (math.isfinite(factor) and factor > 0):
        raise BadInput(f"Expected trainer.lr={value} to be a number, auto, or auto*0.5, say, for half of that.")
    return factor
