"""Arithmetic of arrays on a grid of losses, in few new arrays: new pages of memory cost more than the arithmetic."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

LARGEST_EXPONENT = 300.0


def limited_exp(exponents: np.ndarray) -> np.ndarray:
    """exp of exponents up to `LARGEST_EXPONENT`, written over them."""
    np.minimum(exponents, LARGEST_EXPONENT, out=exponents)
    np.exp(exponents, out=exponents)
    return exponents


def tilted_norm(theta: float, interval: float, points: int) -> float:
    """The Euclidean norm of exp(theta interval) (1 - exp(-x)) exp(-theta x) over so many grid points x, from the first.

    This is how much the errors of a tilted composition, at all larger losses, may change delta, by Cauchy-Schwarz.
    """
    grid = np.arange(1, points + 1, dtype=float)
    grid *= -interval
    shares = np.expm1(grid)
    grid *= theta
    shares *= np.exp(grid, out=grid)
    return float(np.linalg.norm(shares)) * math.exp(theta * interval)


def interval_near(good: np.ndarray, centre: int) -> tuple[int, int]:
    """First and last place of the interval of good points nearest to `centre`; `centre` alone if none is good."""
    places = np.flatnonzero(good)
    if len(places) == 0:
        return centre, centre
    anchor = int(places[np.abs(places - centre).argmin()])
    bad = np.flatnonzero(~good)
    place = int(np.searchsorted(bad, anchor))
    low = int(bad[place - 1]) + 1 if place else 0
    return low, int(bad[place]) - 1 if place < len(bad) else len(good) - 1


def sums_above(weights: np.ndarray) -> np.ndarray:
    """Sums over all later points; 0 at the last point."""
    sums = np.zeros(len(weights))
    np.cumsum(weights[:0:-1], out=sums[-2::-1])
    return sums


def fold_modulo(weights: np.ndarray, lowest: int, size: int) -> np.ndarray:
    """Weights summed modulo `size`, with the loss 0 at place 0."""
    start = lowest % size
    padded = np.zeros(math.ceil((start + len(weights)) / size) * size)
    padded[start : start + len(weights)] = weights
    return reduce(np.add, padded.reshape(-1, size))


def powers_by_squaring(values: np.ndarray, count: int) -> np.ndarray:
    """The power `count` of each value, by repeated squaring."""
    result = None
    while count:
        if count % 2:
            result = values.copy() if result is None else result * values
        count //= 2
        if count:
            values = values * values
    return np.ones(values.shape, dtype=complex) if result is None else result
