"""Tests of released noise: whether each number of a noisy sum carries N(0, std^2), drawn anew at each step.

An audit knows the exact sums, subtracts them from the released ones, and divides by the declared standard deviation.
Under the declared mechanism what remains is independent standard normal, so each test has an exact distribution. Its
p-value is corrected for all that it looks at (Bonferroni): for every a, it is below a with a probability of at most a.

Sources: the chi-square law of sums of squares; the projection of a standard normal vector on a direction that is
independent of it is standard normal; for the cosine r of two vectors of n independent standard normal numbers, r^2 has
the law Beta(1/2, (n - 1)/2) (Muirhead 1982, Theorem 1.5.7).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from dpsweep.accounting.audit.record import Compared

PAIRED = 1024
"""At most so many numbers, evenly spaced from the first to the last, are compared in pairs."""

AT_ONCE = 64
"""So many steps are multiplied at once, which takes a fraction of the time of one after another."""

Numbers = NDArray[np.float64]


@dataclass(kw_only=True, eq=False)
class ReleasedNoise:
    """Sums over all noise that was seen, in declared standard deviations, of a vector of tensors of these sizes."""

    kind: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    draws: int = 0
    _totals: Numbers = field(init=False)
    _squares: Numbers = field(init=False)
    _paired: NDArray[np.int64] = field(init=False)
    _products: Numbers = field(init=False)
    _waiting: list[Numbers] = field(default_factory=list)
    _shadows: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        size = sum(self.sizes)
        self._totals, self._squares = np.zeros(size), np.zeros(size)
        self._paired = np.unique(np.linspace(0, size - 1, min(size, PAIRED)).round().astype(np.int64))
        self._products = np.zeros((len(self._paired), len(self._paired)))

    def add(self, noise: Numbers, beside: Mapping[str, ArrayLike]) -> None:
        """Adds the noise [P] of one release; it is independent of the vectors [P] `beside` it, which have names."""
        self.draws += 1
        self._totals += noise
        self._squares += noise**2
        self._waiting.append(noise[self._paired])
        if len(self._waiting) == AT_ONCE:
            self._multiply()
        for name, vector in beside.items():
            direction: Numbers = np.asarray(vector, dtype=np.float64)
            if length := float(np.linalg.norm(direction)):
                self._shadows[name].append(float(noise @ direction) / length)

    def tests(self) -> Iterator[Compared]:
        """The outcome of each test; none if no noise was seen."""
        if not self.draws:
            return
        sizes, repeated = np.array(self.sizes), self._totals**2 / self.draws
        numbers = [self._name(place) for place in range(len(self._squares))]
        yield self._chi_square("of each number", numbers, self._squares, np.full(len(numbers), self.draws))
        yield self._chi_square("of each tensor", self.names, self._by_tensor(self._squares), self.draws * sizes)
        yield self._chi_square(
            "repeated over steps",
            [*numbers, *self.names],
            np.concatenate([repeated, self._by_tensor(repeated)]),
            np.concatenate([np.ones(len(numbers)), sizes]),
        )
        for name, values in self._shadows.items():
            shadows = np.array(values)
            squares = np.array([np.sum(shadows**2), np.sum(shadows) ** 2 / len(shadows)])
            yield self._chi_square(f"along {name}", ["all", "mean"], squares, np.array([len(shadows), 1]))
        if len(self._paired) > 1 and self.draws > 1:
            yield self._pairs()

    def _chi_square(self, name: str, places: Sequence[str], squares: Numbers, freedom: NDArray[Any]) -> Compared:
        """Two-sided tests of sums of squares of so many standard normal numbers; the value is the farthest std."""
        p_values = 2 * np.minimum(stats.chi2.cdf(squares, freedom), stats.chi2.sf(squares, freedom))
        worst = int(p_values.argmin())
        return Compared(
            name=f"{self.kind} {name}",
            compared=len(p_values),
            value=float(np.sqrt(squares[worst] / freedom[worst])),
            expected="1",
            place=places[worst],
            p_value=min(1.0, len(p_values) * float(p_values[worst])),
        )

    def _pairs(self) -> Compared:
        """Whether any two numbers have noise that goes together; the value is the largest correlation."""
        self._multiply()
        scale = np.sqrt(np.maximum(self._products.diagonal(), np.finfo(float).tiny))
        cosines = np.triu(self._products / np.outer(scale, scale), k=1)
        one, other = np.unravel_index(int(np.abs(cosines).argmax()), cosines.shape)
        largest, pairs = float(cosines[one, other]), len(scale) * (len(scale) - 1) // 2
        return Compared(
            name=f"{self.kind} of pairs",
            compared=pairs,
            value=largest,
            expected="0",
            place=" and ".join(self._name(int(self._paired[place])) for place in (one, other)),
            p_value=min(1.0, pairs * float(stats.beta.sf(largest**2, 0.5, (self.draws - 1) / 2))),
        )

    def _multiply(self) -> None:
        if self._waiting:
            rows = np.array(self._waiting)
            self._products += rows.T @ rows
            self._waiting.clear()

    def _by_tensor(self, values: Numbers) -> Numbers:
        return np.add.reduceat(values, np.cumsum([0, *self.sizes[:-1]]))

    def _name(self, place: int) -> str:
        """A number in words: `bias[3]`."""
        ends = np.cumsum(self.sizes)
        tensor = int(np.searchsorted(ends, place, side="right"))
        return f"{self.names[tensor]}[{place - ends[tensor] + self.sizes[tensor]}]"
