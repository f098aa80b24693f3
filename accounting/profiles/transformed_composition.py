"""The Fourier transform of a tilted composition with a bound on its error, and the search for a tilt's theta."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import fft

from dpsweep.accounting.profiles.grid_arrays import fold_modulo, powers_by_squaring
from dpsweep.accounting.profiles.loss_grid import Losses

UNIT = 2.0**-53
LEVEL = 16 * UNIT
"""The relative rounding error of one level of a transform."""

ONE_STEP = 1e-13

NEGLIGIBLE = 80.0
"""Minus the logarithm of a transform's values that count as 0."""


def tilted_composition(parts: Sequence[tuple[Losses, int]], theta: float, size: int) -> tuple[np.ndarray, float, float]:
    """The tilted composition modulo `size`, its log-moment, and a bound on the Euclidean norm of its error."""
    level = LEVEL * (math.log2(size) + 4)
    total, relative, alive = 0.0, 4 * UNIT * len(parts), None
    product = envelope = np.ones(0)
    for losses, count in parts:
        weights, log = losses.tilted(theta)
        total += count * log
        tilting = float(weights @ (np.abs(theta * losses.values) + np.abs(np.maximum(losses.logs, -800.0))))
        values = fft.rfft(fold_modulo(weights, losses.lowest, size))
        one_step = level + 2 * UNIT * (tilting + abs(log) + len(weights) // size + 8) + ONE_STEP
        relative += 2 * count * one_step
        if alive is not None:
            values = values[alive]
        squares = np.maximum(values.real**2 + values.imag**2, 0.25)
        if alive is None:
            alive = np.flatnonzero(squares > math.exp(-2 * NEGLIGIBLE / count))
            values, squares = values[alive], squares[alive]
            product, envelope = np.ones(len(alive), dtype=complex), np.ones(len(alive))
        product = product * powers_by_squaring(values, count)
        envelope = envelope * np.exp(count / 2 * np.log(squares))
    spectrum = np.zeros(size // 2 + 1, dtype=complex)
    spectrum[alive] = product
    factor = math.expm1(min(50.0, relative))
    norm = factor * math.sqrt(2 * float(envelope @ envelope)) + math.sqrt(size) * 2 * math.exp(-NEGLIGIBLE)
    masses = fft.irfft(spectrum, size)
    error = norm / math.sqrt(size) + 2 * level * float(np.linalg.norm(masses))
    return masses, total, error


def zero_of_decreasing(excess: Callable[[float], float], steepest: float) -> float:
    """The zero of a decreasing function of theta, to a relative 1e-3, between 0 and `steepest`."""
    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, min(1.0, steepest)
    while excess(high) > 0:
        if high >= steepest:
            return steepest
        low, high = high, min(4 * high, steepest)
    while high - low > 1e-3 * high and high > 1e-6:
        middle = math.sqrt(low * high) if low > high / 100 else high / 8
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high
