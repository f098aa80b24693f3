"""Privacy losses of composed Gaussian steps between a floor and a ceiling, by arithmetic of their own.

Nothing here calls the product. A step is a dominating pair of laws P and Q. The outcomes are cut into cells of the loss
ln(dP / dQ). Two mechanisms stand beside the step:

* the ceiling: each cell is split to the two ends of its interval, so that its masses under P and Q stay. The step is a
  post-processing of that, so no delta of it is above.
* the floor: cells are merged until each has a loss on a grid, which is a post-processing of the step. Where nothing is
  near to merge with, a loss falls to the grid, so that no delta grows.

The sums of the losses are transformed in 64 bits of mantissa, untilted. What a transform's window leaves out is counted
as an infinite loss in the ceiling, and is left out of the floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pytest
from scipy import fft, optimize, special

needs_long_doubles = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="long doubles have no more digits here"
)

OUTSIDE = 1e-4
"""The part of delta that the mass beyond a step's cells, and that outside a window, may have."""

ROUNDING = 1e-3
"""The part of delta that is left to rounding."""

POINTS = 2**16


@dataclass(frozen=True)
class Cells:
    """Cells of the loss: the place of each cell's lower end on the grid, its mass under P, ln(P / Q), all of shape [n].

    `below` and `above` are the masses of P beyond the first and the last end.
    """

    places: np.ndarray
    masses: np.ndarray
    losses: np.ndarray
    below: float
    above: float


class Law(Protocol):
    """A dominating pair of one step."""

    def cells(self, first: int, last: int, width: float) -> Cells:
        """The cells between `first` and `last` times `width`."""
        ...


def _normal_masses(ends: np.ndarray, mean: float) -> np.ndarray:
    """The masses of N(mean, 1) between neighbouring ends, from the nearer tail."""
    z = ends - mean
    return np.where(
        z[:-1] > 0, special.ndtr(-z[:-1]) - special.ndtr(-z[1:]), special.ndtr(z[1:]) - special.ndtr(z[:-1])
    )


@dataclass(frozen=True)
class Removed:
    """(1 - rate) N(0, 1) + rate N(1 / noise, 1) against N(0, 1)."""

    rate: float
    noise: float

    def outputs(self, losses: np.ndarray) -> np.ndarray:
        """The outputs with these losses, in standard deviations; -inf below the least loss."""
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.log(np.maximum(np.expm1(np.minimum(losses, 700.0)) + self.rate, 0.0)) - math.log(self.rate)
        return np.asarray(self.noise * odds + 1 / (2 * self.noise))

    def both(self, first: int, last: int, width: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The masses under P and Q and ln(P / Q), of all outcomes: the first and the last cell are unbounded."""
        ends = np.concatenate([[-np.inf], self.outputs(np.arange(first, last + 1) * width), [np.inf]])
        plain, moved = _normal_masses(ends, 0.0), _normal_masses(ends, 1 / self.noise)
        with np.errstate(divide="ignore", invalid="ignore"):
            change = self.rate * (moved / plain - 1)
            losses = np.where(change > -0.5, np.log1p(change), np.log(1 - self.rate + self.rate * moved / plain))
        return (1 - self.rate) * plain + self.rate * moved, plain, losses

    def cells(self, first: int, last: int, width: float) -> Cells:
        masses, _, losses = self.both(first, last, width)
        return _cells(first, width, masses, losses)


@dataclass(frozen=True)
class Added:
    """N(0, 1) against (1 - rate) N(0, 1) + rate N(1 / noise, 1)."""

    rate: float
    noise: float

    def cells(self, first: int, last: int, width: float) -> Cells:
        _, masses, losses = Removed(self.rate, self.noise).both(-last, -first, width)
        return _cells(first, width, masses[::-1], -losses[::-1])


@dataclass(frozen=True)
class Replaced:
    """(1 - rate) N(0, 1) + rate N(1 / noise, 1) against (1 - rate) N(0, 1) + rate N(-1 / noise, 1)."""

    rate: float
    noise: float

    def cells(self, first: int, last: int, width: float) -> Cells:
        half = np.arange(first, last + 1) * width / 2
        weight = (1 - self.rate) / self.rate * math.exp(1 / (2 * self.noise**2))
        ends = self.noise * (half + np.arcsinh(weight * np.sinh(half)))
        ends = np.concatenate([[-np.inf], ends, [np.inf]])
        plain, up, down = (_normal_masses(ends, mean / self.noise) for mean in (0, 1, -1))
        others = (1 - self.rate) * plain + self.rate * down
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.log1p(self.rate * (up - down) / others)
        return _cells(first, width, (1 - self.rate) * plain + self.rate * up, losses)


@dataclass(frozen=True)
class FixedSize:
    """The pair whose hockey-stick is rate times that of N(2 / noise, 1) and N(0, 1), at ln(1 + (exp(e) - 1) / rate).

    Balle, Barthe, Gaboardi 2018, Theorem 9, for e >= 0, and the same with P and Q exchanged; both are attained. So
    losses above 0 are those of the removal of a record that counts twice, losses below 0 are those of its mirror
    image, and all other mass has the loss 0.
    """

    rate: float
    noise: float

    def cells(self, first: int, last: int, width: float) -> Cells:
        most = max(last, -first)
        ahead, back, losses = Removed(self.rate, self.noise / 2).both(0, most, width)
        ahead, back, losses = ahead[1:], back[1:], losses[1:]
        places = np.arange(most)
        return Cells(
            places=np.concatenate([-1 - places[::-1], [0], places]),
            masses=np.concatenate([back[-2::-1], [max(0.0, 1 - ahead.sum() - back.sum())], ahead[:-1]]),
            losses=np.concatenate([-losses[-2::-1], [0.0], losses[:-1]]),
            below=float(back[-1]),
            above=float(ahead[-1]),
        )


def _cells(first: int, width: float, masses: np.ndarray, losses: np.ndarray) -> Cells:
    """Cells of all outcomes, the first and the last of which are unbounded, without the empty ones."""
    places = np.arange(first, first + len(masses) - 2)
    inner, logs = masses[1:-1], losses[1:-1]
    filled = inner > 0
    logs = np.where(np.isfinite(logs), logs, width * places)
    return Cells(
        places=places[filled],
        masses=inner[filled],
        losses=logs[filled],
        below=float(masses[0]),
        above=float(masses[-1]),
    )


Parts = Sequence[tuple[Law, int]]


@dataclass(frozen=True)
class Composition:
    """Masses on grid points of the sum of losses, that of an infinite loss, and that which may be at a wrong place."""

    losses: np.ndarray
    masses: np.ndarray
    infinite: float
    doubtful: float

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at this epsilon."""
        shares = -np.expm1(np.minimum(0.0, epsilon - self.losses))
        return float(self.masses @ shares) + self.infinite


@dataclass(frozen=True)
class Bracket:
    """A composition between its floor and its ceiling."""

    floor: Composition
    ceiling: Composition

    def epsilons(self, delta: float) -> tuple[float, float]:
        """An epsilon that is at most the true one, and one that is at least that."""
        least = _root(lambda epsilon: self.floor.delta(epsilon) - self.floor.doubtful - delta * (1 + ROUNDING))
        most = _root(lambda epsilon: self.ceiling.delta(epsilon) + self.ceiling.doubtful - delta * (1 - ROUNDING))
        return least, most


def _root(excess: Callable[[float], float]) -> float:
    """The epsilon >= 0 at which a decreasing excess is 0; infinity above 1e7."""
    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, 1e-3
    while excess(high) > 0:
        low, high = high, 2 * high
        if high > 1e7:
            return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def bracket(parts: Parts, delta: float, points: int = POINTS) -> Bracket:
    """The composition of `count` steps of each law, for epsilons at about this delta, on windows of so many points."""
    counts = [count for _, count in parts]
    reaches = [_reach(law, OUTSIDE * delta / sum(counts)) for law, _ in parts]
    width, enough = max(top - bottom for bottom, top in reaches) / 1000, False
    while not enough:
        cells = [
            law.cells(math.floor(bottom / width), math.ceil(top / width) + 1, width)
            for (law, _), (bottom, top) in zip(parts, reaches, strict=True)
        ]
        ceilings = [_ceiling(each, width) for each in cells]
        low, high = _window(ceilings, counts, width, delta)
        needed = (high - low) / (0.95 * points)
        enough = 0.8 * width <= needed <= width
        width = width if enough else needed * 1.02
    offsets, floors = zip(*(_floor(each, width) for each in cells), strict=True)
    shift = sum(count * offset for count, offset in zip(counts, offsets, strict=True))
    lowest, highest = _window(floors, counts, width, delta)
    start, lower = math.floor(low / width), math.floor(lowest / width)
    doubtful = 2 * OUTSIDE * delta
    return Bracket(
        floor=Composition(
            losses=width * (lower + np.arange(points)) + shift,
            masses=_sums(floors, counts, lower, points),
            infinite=0.0,
            doubtful=doubtful if highest - lowest < points * width else math.inf,
        ),
        ceiling=Composition(
            losses=width * (start + np.arange(points)),
            masses=_sums(ceilings, counts, start, points),
            infinite=sum(count * each.above for count, each in zip(counts, cells, strict=True)),
            doubtful=doubtful,
        ),
    )


def _reach(law: Law, mass: float) -> tuple[float, float]:
    """Losses beyond which P has at most this mass, on either side."""

    def end(sign: int) -> float:
        def beyond(size: float) -> float:
            cells = law.cells(-1, 1, size)
            return cells.above if sign > 0 else cells.below

        low, high = 0.0, 1e-6
        while beyond(high) > mass:
            low, high = high, 2 * high
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if beyond(middle) > mass else (low, middle)
        return sign * high

    return end(-1), end(1)


Masses = tuple[np.ndarray, np.ndarray]
"""Places on a grid, and their masses."""


def _window(parts: Sequence[Masses], counts: Sequence[int], width: float, delta: float) -> tuple[float, float]:
    """Sums of losses beyond which Chernoff's bound leaves at most a part `OUTSIDE` of delta, on either side."""
    with np.errstate(divide="ignore"):
        logs = [np.log(masses) for _, masses in parts]
    bound = -math.log(OUTSIDE * delta)

    def end(theta: float) -> float:
        moments = (
            count * float(special.logsumexp(log + theta * width * places))
            for log, (places, _), count in zip(logs, parts, counts, strict=True)
        )
        return (sum(moments) + bound) / theta

    thetas = 2.0 ** np.arange(-4, 24, 2)
    return max(end(-theta) for theta in thetas), min(end(theta) for theta in thetas)


def _ceiling(cells: Cells, width: float) -> Masses:
    """Each cell, split to both of its ends so that its masses under P and Q stay; below all is the lowest end."""
    upper = np.clip(np.expm1(width * cells.places - cells.losses) / math.expm1(-width), 0.0, 1.0)
    places = np.concatenate([cells.places, cells.places + 1, [cells.places.min()]])
    return places, np.concatenate([cells.masses * (1 - upper), cells.masses * upper, [cells.below]])


def _floor(cells: Cells, width: float) -> tuple[float, Masses]:
    """The offset of a grid, and the masses at its places: of several merged steps the one of the largest divergence.

    The heaviest cell, with a few cells next to it, becomes one outcome, whose loss is on the grid.
    """

    def divergence(one: tuple[float, Masses]) -> float:
        offset, (places, masses) = one
        return float(masses @ (offset + width * places))

    return max((_merged_to_grid(cells, width, near) for near in (0, 1, 2)), key=divergence)


def _merged_to_grid(cells: Cells, width: float, near: int) -> tuple[float, Masses]:
    """The offset of a grid, and the masses at its places after outcomes were merged until their losses are on it.

    From the lowest place up, what is left below a place is merged with as much from above, the nearest first, as gives
    both together the loss of that place. What finds nothing near above falls to the place below.
    """
    heaviest = int(cells.masses.argmax())
    first, last = max(0, heaviest - near), heaviest + near + 1
    one = float(cells.masses[first:last].sum())
    offset = -math.log1p(float(cells.masses[first:last] @ np.expm1(-cells.losses[first:last])) / one)
    logs = [*cells.losses[:first].tolist(), offset, *cells.losses[last:].tolist()]
    masses = [*cells.masses[:first].tolist(), one, *cells.masses[last:].tolist()]
    merged: dict[int, float] = {}
    first = 0
    while first < len(logs):
        place = math.ceil((logs[first] - offset) / width - 1e-9)
        loss = offset + width * place
        below, deficit, after = 0.0, 0.0, first
        while after < len(logs) and logs[after] <= loss + 1e-9 * width:
            below += masses[after]
            deficit += max(0.0, masses[after] * math.expm1(loss - logs[after]))
            after += 1
        above, needed = 0.0, deficit
        while after < len(logs) and needed > 0 and logs[after] < loss + 2 * width:
            excess = -masses[after] * math.expm1(loss - logs[after])
            share = 1.0 if excess <= needed else needed / excess  # an excess may be too small for a number
            above += share * masses[after]
            needed -= share * excess
            masses[after] = max(0.0, masses[after] * (1 - share))
            if share < 1:
                break
            after += 1
        fallen = below * min(1.0, needed / deficit) if needed > 1e-12 * deficit else 0.0
        merged[place] = merged.get(place, 0.0) + below - fallen + above
        merged[place - 1] = merged.get(place - 1, 0.0) + fallen
        first = after
    return offset, (np.array(list(merged)), np.array(list(merged.values())))


def _sums(parts: Sequence[Masses], counts: Sequence[int], start: int, points: int) -> np.ndarray:
    """The masses of the sums at places from `start`, modulo `points`."""
    product: np.ndarray | None = None
    for (places, masses), count in zip(parts, counts, strict=True):
        folded = np.zeros(points, np.longdouble)
        np.add.at(folded, places % points, masses.astype(np.longdouble))
        values = _power(fft.rfft(folded), count)
        product = values if product is None else product * values
    return np.roll(fft.irfft(product, points), -(start % points)).astype(float)


def _power(values: np.ndarray, count: int) -> np.ndarray:
    result = np.ones_like(values)
    while count:
        result = result * values if count % 2 else result
        count //= 2
        values = values * values if count else values
    return result


def epsilons_between(parts: Parts, delta: float, points: int = POINTS) -> tuple[float, float]:
    """Bounds on the epsilon of a composition, in this one direction."""
    return bracket(parts, delta, points).epsilons(delta)


def gaussian_delta(mu: float, epsilons: np.ndarray) -> np.ndarray:
    """The delta of a Gaussian mechanism of this sensitivity over noise, at epsilons of any sign.

    Balle and Wang 2018, Theorem 8.
    """
    near, far = (special.log_ndtr(side * mu / 2 - epsilons / mu) for side in (1, -1))
    return np.asarray(np.exp(near) * -np.expm1(np.minimum(0.0, epsilons + far - near)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon >= 0 of a Gaussian mechanism of this sensitivity over noise."""

    def excess(epsilon: float) -> float:
        return float(np.log(gaussian_delta(mu, np.array([epsilon]))[0] + 1e-320)) - math.log(delta)

    if excess(0.0) <= 0:
        return 0.0
    return float(optimize.brentq(excess, 0.0, mu**2 / 2 + 40 * mu, xtol=1e-14, rtol=1e-13))


@dataclass(frozen=True)
class Draw:
    """A setting from the ranges for which prices are checked."""

    rate: float
    noise: float
    steps: int
    delta: float


RATES, NOISES, STEPS, DELTAS = (1e-5, 1.0), (0.3, 50.0), (1, 20_000), (1e-12, 1e-2)


def draws(n: int, seed: int) -> list[Draw]:
    """Settings that are uniform in the logarithm of each number."""
    rng = np.random.Generator(np.random.Philox(seed))

    def one(ends: tuple[float, float]) -> float:
        return float(np.exp(rng.uniform(*np.log(ends))))

    return [Draw(one(RATES), one(NOISES), math.floor(one(STEPS)), one(DELTAS)) for _ in range(n)]


def sized(n: int, more: int, seed: int) -> list[object]:
    """A few settings for every run of the tests, and more for long ones, each a case of its own."""
    return [
        pytest.param(case, id=str(place), marks=() if place < n else pytest.mark.long)
        for place, case in enumerate(draws(n + more, seed))
    ]
