"""Tests of released noise: whether each number of a noisy sum carries N(0, std^2), drawn anew at each step.

Guesses of coins say little of noise that is wrong in a few numbers of many. Here the attacker knows the exact sums,
which are 0 where no canary is, subtracts them, and divides by the declared standard deviation. Under the declared
mechanism all that remains is independent standard normal, so each test below has an exact distribution. Its p-value is
corrected for all that it looks at (Bonferroni): for every a, it is below a with a probability of at most a.

Sources: the chi-square law of sums of squares; for the cosine r of two vectors of n independent standard normal
numbers, r^2 has the law Beta(1/2, (n - 1)/2) whatever one of the two is (Muirhead 1982, Theorem 1.5.7). Where a number
is not known at every step, the other vector is projected, which only shortens the cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpsweep.accounting.audit_record import NoiseFinding, NoiseTest

PAIRED = 1024
"""At most so many numbers are compared in pairs: the first ones of each tensor."""

AT_ONCE = 64
"""So many steps are multiplied at once, which takes a fraction of the time of one after another."""

HALF = 0.5
"""The share of the declared standard deviation whose discovery has a stated probability."""

Numbers = NDArray[np.float64]


def sample_sizes_per_tensor(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    """How many numbers of each tensor are taken, `count` of all or fewer: as many of each, where a tensor has them.

    With fewer numbers than tensors, one of each of evenly spaced tensors.

    >>> sample_sizes_per_tensor([640, 10], 100), sample_sizes_per_tensor([640, 10], 1000)
    ((90, 10), (640, 10))
    >>> sample_sizes_per_tensor([5, 5, 5, 5], 2)
    (1, 0, 0, 1)
    """
    if count < len(sizes):
        chosen = np.unique(np.linspace(0, len(sizes) - 1, count).round().astype(np.int64))
        return tuple(int(place in chosen) for place in range(len(sizes)))
    shares, missing = [0] * len(sizes), count
    for waiting, place in zip(range(len(sizes), 0, -1), np.argsort(sizes, kind="stable").tolist(), strict=True):
        shares[place] = min(sizes[place], missing // waiting)
        missing -= shares[place]
    return tuple(shares)


@dataclass(frozen=True, kw_only=True)
class TensorLayout:
    """The tensors of a flat vector in their order: their names and sizes."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def vector_length(self) -> int:
        """The length of the vector."""
        return sum(self.sizes)

    @property
    def tensor_starts(self) -> tuple[int, ...]:
        """The place of each tensor's first number."""
        return tuple(int(end) - size for end, size in zip(np.cumsum(self.sizes), self.sizes, strict=True))

    def spaced_places(self, count: int) -> NDArray[np.int64]:
        """Places of at most `count` numbers, of every tensor, evenly spaced from its first to its last number."""
        parts = zip(self.tensor_starts, self.sizes, sample_sizes_per_tensor(self.sizes, count), strict=True)
        return np.concatenate(
            [start + np.linspace(0, size - 1, share).round().astype(np.int64) for start, size, share in parts]
        )

    def leading_places(self, count: int) -> NDArray[np.int64]:
        """Places of at most `count` numbers, the first ones of every tensor."""
        parts = zip(self.tensor_starts, sample_sizes_per_tensor(self.sizes, count), strict=True)
        return np.concatenate([start + np.arange(share) for start, share in parts])

    def tensor_name_and_index_text(self, place: int) -> str:
        """A number in words: `bias[3]`."""
        tensor = int(np.searchsorted(self.tensor_starts, place, side="right")) - 1
        return f"{self.names[tensor]}[{place - self.tensor_starts[tensor]}]"


@dataclass(kw_only=True, eq=False)
class ReleasedNoise:
    """Sums over all noise that was seen of vectors of one layout, in declared standard deviations."""

    layout: TensorLayout
    counts: Numbers = field(init=False)
    totals: Numbers = field(init=False)
    squares: Numbers = field(init=False)
    paired: NDArray[np.int64] = field(init=False)
    _products: Numbers = field(init=False)
    _waiting: list[Numbers] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts, self.totals, self.squares = (np.zeros(self.layout.vector_length) for _ in range(3))
        self.paired = self.layout.leading_places(PAIRED)
        self._products = np.zeros((len(self.paired), len(self.paired)))

    def add_step_noise(self, noise: ArrayLike, known: ArrayLike) -> None:
        """Adds the noise of one step [P], of those numbers that are `known` [P]; which ones must not depend on it."""
        there = np.asarray(known, dtype=np.bool_)
        values = np.where(there, np.asarray(noise, dtype=np.float64), 0.0)
        self.counts += there
        self.totals += values
        self.squares += values**2
        self._waiting.append(values[self.paired])
        if len(self._waiting) == AT_ONCE:
            self._add_products_of_waiting_steps()

    def sums_of_pair_products(self) -> Numbers:
        """The sums of products of any two of the numbers that are compared in pairs."""
        if self._waiting:
            self._add_products_of_waiting_steps()
        return self._products

    def _add_products_of_waiting_steps(self) -> None:
        rows = np.array(self._waiting)
        self._products += rows.T @ rows
        self._waiting.clear()

    def findings(self, false_alarm: float) -> tuple[NoiseFinding, ...]:
        """The outcome of each test; `false_alarm` of a single one, for its power."""
        return (
            self._variance_finding_by_number(false_alarm),
            self._variance_finding_by_tensor(false_alarm),
            self._independence_finding_over_steps(),
            self._pair_correlation_finding(),
        )

    def _variance_finding_by_number(self, false_alarm: float) -> NoiseFinding:
        """Whether the variance of each number is the declared one."""
        p_values = _chi_square_p_values(self.squares, self.counts)
        worst = int(p_values.argmin())
        return NoiseFinding(
            test=NoiseTest.NUMBERS,
            tested=len(p_values),
            draws=self._fewest_draws(),
            place=self.layout.tensor_name_and_index_text(worst),
            value=float(np.sqrt(self.squares[worst] / max(1.0, self.counts[worst]))),
            p_value=_corrected_p_value(p_values),
            halved_seen=_power_at_half_noise(self._fewest_draws(), false_alarm / len(p_values)),
        )

    def _variance_finding_by_tensor(self, false_alarm: float) -> NoiseFinding:
        """Whether the variance of each tensor's numbers together is the declared one."""
        squares, counts = self._sums_by_tensor(self.squares), self._sums_by_tensor(self.counts)
        p_values = _chi_square_p_values(squares, counts)
        worst, fewest = int(p_values.argmin()), int(counts.min())
        return NoiseFinding(
            test=NoiseTest.TENSORS,
            tested=len(p_values),
            draws=fewest,
            place=self.layout.names[worst],
            value=float(np.sqrt(squares[worst] / max(1.0, counts[worst]))),
            p_value=_corrected_p_value(p_values),
            halved_seen=_power_at_half_noise(fewest, false_alarm / len(p_values)),
        )

    def _independence_finding_over_steps(self) -> NoiseFinding:
        """Whether the sum over all steps and runs has the variance of independent noise: by number, by tensor, by all.

        Noise that is repeated adds up to more.
        """
        seen = np.maximum(self.counts, 1.0)
        ratios, there = self.totals**2 / seen, (self.counts > 0).astype(np.float64)
        squares = np.concatenate([ratios, self._sums_by_tensor(ratios), [ratios.sum()]])
        freedom = np.concatenate([there, self._sums_by_tensor(there), [there.sum()]])
        p_values = _chi_square_p_values(squares, freedom)
        worst, numbers, tensors = int(p_values.argmin()), len(ratios), len(self.layout.names)
        names = (*self.layout.names, "all")
        return NoiseFinding(
            test=NoiseTest.STEPS,
            tested=numbers + tensors + 1,
            draws=self._fewest_draws(),
            place=self.layout.tensor_name_and_index_text(worst) if worst < numbers else names[worst - numbers],
            value=float(np.sqrt(squares[worst] / max(1.0, freedom[worst]))),
            p_value=_corrected_p_value(p_values),
        )

    def _pair_correlation_finding(self) -> NoiseFinding:
        """Whether any two numbers, of one tensor or of two, have noise that goes together."""
        products = self.sums_of_pair_products()
        own, draws = products.diagonal(), int(self.counts[self.paired].min())
        scale = np.sqrt(np.where(own > 0, own, np.inf))
        cosines = np.triu(products / np.outer(scale, scale), k=1)
        one, other = np.unravel_index(int(np.abs(cosines).argmax()), cosines.shape)
        largest, pairs = float(cosines[one, other]), len(own) * (len(own) - 1) // 2
        single = special.betainc((draws - 1) / 2, 0.5, max(0.0, 1 - largest**2)) if draws > 1 and pairs else 1.0
        return NoiseFinding(
            test=NoiseTest.PAIRS,
            tested=pairs,
            draws=draws,
            place=" and ".join(
                self.layout.tensor_name_and_index_text(int(self.paired[place])) for place in (one, other)
            ),
            value=largest,
            p_value=min(1.0, pairs * float(single)) if pairs else 1.0,
        )

    def _fewest_draws(self) -> int:
        return int(self.counts.min())

    def _sums_by_tensor(self, values: Numbers) -> Numbers:
        return np.add.reduceat(values, self.layout.tensor_starts)


def _chi_square_p_values(squares: Numbers, freedom: Numbers) -> Numbers:
    """Two-sided p-values of sums of squares of so many standard normal numbers; 1 for none of them."""
    degrees = np.maximum(freedom, 1.0)
    tails = np.minimum(special.chdtr(degrees, squares), special.chdtrc(degrees, squares))
    return np.where(freedom > 0, np.minimum(1.0, 2 * tails), 1.0)


def _corrected_p_value(p_values: Numbers) -> float:
    return min(1.0, len(p_values) * float(p_values.min()))


def _power_at_half_noise(draws: int, false_alarm: float) -> float:
    """The probability that half the declared noise in so many draws is found at this false alarm."""
    if draws < 1:
        return 0.0
    low = 2 * special.gammaincinv(draws / 2, false_alarm / 2)
    return float(special.chdtr(draws, low / HALF**2))
