"""Compositions of privacy losses on a grid, and their tails, by a Fourier transform of exponentially tilted
distributions.

A Fourier transform rounds every probability by about 1e-16 of the largest one, so a plain transform cannot resolve the
tail that determines a small delta. Here each step's losses are weighted by exp(theta loss) before the transform, with
theta at the saddle point of the requested delta or epsilon. The tail becomes the bulk, and the rounding error is a
small part of delta instead of a constant. With K the sum of the steps' log-moments at theta and P the tilted
composition,

    delta(e) = infinite + exp(K - theta e) sum over x = loss - e > 0 of (1 - exp(-x)) exp(-theta x) P(loss).

*Guarantee*: every result is an upper bound for the input distributions, including floating-point errors. These terms
are added to the computed delta:

* Losses beyond the transform's window: exp(K(t) - t top), Chernoff's bound at one t > theta. Mass that wraps around
  into the window only increases P.
* The transform. In a sum of N terms, computed by a Cooley-Tukey algorithm in log2 N levels of complex products and
  sums, the error of each term is at most about 7 log2 N units of rounding (Higham 2002, Accuracy and Stability of
  Numerical Algorithms, Theorem 24.2, with weights correct to one unit); the code counts 16. So the error `e` of each
  value y of the one-step transform is at most that number times the sum of the tilted probabilities, which is 1, plus
  the rounding of the tilt. The error of the power n is at most A^n ((1 + 2 e)^n - 1) with A = max(|y|, 1/2). By
  Parseval's equation, the root of the sum of squares of these errors bounds the error of P in the Euclidean norm. The
  inverse transform adds 16 log2 N units of the norm of P, and Cauchy-Schwarz turns the result into an error of delta.
* The probabilities of one step: a relative error `ONE_STEP` each, for the digits that their closed form loses. Second
  differences magnify errors of a curve, but these cancel when summed by parts against exp(theta loss). The remainder is
  a few units of rounding of the curve's decrements, divided by the grid step. A grid step is at most a tenth of the
  losses' scale, so the remainder is ten units; the code counts 900.
* Running sums: one unit of rounding for each addition.

Where samples are small and so is delta, a few huge losses may become the bulk under every tilt that could reach it: a
second saddle point. Then the largest losses, which have at most a small part of delta together, count as infinite
(`CUTS`), which only increases delta.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain

import numpy as np
from scipy import fft

from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.notation import delta_text_rounded_down
from dpsweep.accounting.profiles.loss_grid import (
    LARGEST_EXPONENT,
    ONE_STEP,
    UNIT,
    Losses,
    Outline,
    exp_in_place_with_limit,
    interval_of_good_points,
    norm_of_tilted_error_weights,
    sums_above,
    tilted_composition_with_error_bound,
    zero_of_decreasing,
)

LOG_MOMENT = 1e-6
"""More than the rounding of the log-moment of a composition: a few units for each of at most millions of steps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tail:
    """The tail of a composition above each grid point from `first`, at one tilt, with bounds on its errors.

    With c the loss at `centre`: `mass` sums P exp(-theta (loss - c)) above a point, and `weighted` sums the same times
    exp(-(loss - c)). Both must be multiplied by exp(`scale`). The error of delta(e) is at most `rounding` exp(-theta (e
    - c) + scale) plus the fraction `slack` of the mass; `beyond` is added for losses that are infinite or above
    the window, and a tilted mass of at most `wrapped` comes from losses outside it.
    """

    theta: float
    interval: float
    first: int
    centre: int
    scale: float
    mass: np.ndarray
    weighted: np.ndarray
    rounding: float
    slack: float
    beyond: float
    wrapped: float

    @cached_property
    def lowest_epsilon(self) -> float:
        """The smallest epsilon that this tail covers."""
        return self.interval * self.first

    @cached_property
    def highest_epsilon(self) -> float:
        """The largest epsilon that this tail covers."""
        return self.interval * (self.first + len(self.mass) - 1)

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds at epsilons from `lowest` to `highest`."""
        at = np.clip(np.floor(epsilons / self.interval).astype(np.int64) - self.first, 0, len(self.mass) - 1)
        return self._delta_at_grid_points(epsilons - self.interval * self.centre, at)

    def chernoff_delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds at any epsilons: exp(log-moment - theta epsilon), Chernoff's bound on larger losses."""
        exponents = self.scale - self.theta * (epsilons - self.interval * self.centre)
        return np.asarray(np.exp(np.minimum(0.0, exponents + LOG_MOMENT)) + self.beyond)

    def log_chernoff_delta(self, epsilon: float) -> float:
        """The logarithm of that bound for finite losses alone."""
        return self.scale - self.theta * (epsilon - self.interval * self.centre) + LOG_MOMENT

    def chernoff_epsilon(self, delta: float) -> float:
        """The epsilon at which Chernoff's bound reaches delta; infinity without a tilt."""
        if self.theta == 0 or delta <= self.beyond:
            return math.inf
        bound = (self.scale + LOG_MOMENT - math.log(delta - self.beyond)) / self.theta
        return max(0.0, self.interval * self.centre + bound * (1 + 1e-12))

    def epsilon(self, delta: float) -> float:
        """The epsilon between `lowest` and `highest` at which the bound reaches delta, rounded up."""
        points = self._losses_from_centre
        too_small = np.flatnonzero(self._delta_at_grid_points(points, np.arange(len(points))) > delta)
        if len(too_small) == 0:
            return self.lowest_epsilon
        at = int(too_small[-1])
        scale = math.exp(self.scale)
        error = scale * self.rounding * math.exp(-self.theta * float(points[at]))
        above = float(self.mass[at]) * (1 + self.slack) * scale + error + self.beyond - delta
        weighted = float(self.weighted[at]) * scale
        step = float(points[at]) + self.interval
        if above <= 0 or weighted <= 0:
            return self.interval * self.centre + (step if above > 0 else float(points[at]))
        return self.interval * self.centre + min(step, max(float(points[at]), math.log(above / weighted)))

    def delta_rounding_at(self, epsilon: float) -> float:
        """The part of the delta at `epsilon`, from `lowest` to `highest`, that may be rounding."""
        at = min(max(math.floor(epsilon / self.interval) - self.first, 0), len(self.mass) - 1)
        error = self.rounding * math.exp(-self.theta * (epsilon - self.interval * self.centre))
        return math.exp(self.scale) * (error + self.slack * float(self.mass[at]))

    def delta_uncertainty_at(self, epsilon: float) -> float:
        """The part of the delta at `epsilon`, from `lowest` to `highest`, that the losses may not have.

        These are rounding, infinite losses, those outside the window, and those that wrapped around into it. It falls
        with epsilon. The rounding at a grid point counts up to the next one.
        """
        wrapped = math.exp(self.log_chernoff_delta(epsilon)) * self.wrapped
        return 2 * math.exp(self.theta * self.interval) * self.delta_rounding_at(epsilon) + self.beyond + wrapped

    @cached_property
    def _losses_from_centre(self) -> np.ndarray:
        return np.asarray(self.interval * (self.first - self.centre + np.arange(len(self.mass))))

    def _delta_at_grid_points(self, ahead: np.ndarray, at: np.ndarray) -> np.ndarray:
        mass = self.mass[at]
        inside = np.maximum(0.0, mass - np.exp(ahead) * self.weighted[at]) + self.slack * mass
        return np.asarray(math.exp(self.scale) * (inside + self.rounding * np.exp(-self.theta * ahead)) + self.beyond)


LARGEST_SCALE = 700.0
"""A tilt whose scale is larger is left out but for Chernoff's bound: its exponential is beyond the range of float64."""

TOLERANCE, LARGEST_TOLERANCE = 1e-4, 2e-2
"""The part of a delta that may be rounding: the goal, and the largest value that is accepted; more is refused."""

FLOOR = 1e-40
"""The smallest delta that is computed; smaller ones are reported as bounded by it."""

OUTSIDE = 32.0
"""Minus the logarithm of the tilted mass that is meant to lie on each side of a window."""

LARGEST_WINDOW = 12_000_000
SMALLEST_WINDOW = 256
LARGEST_SUPPORT = 1000.0
"""The largest possible loss is returned as epsilon only up to this value."""

CACHE_SIZE = 3
"""The number of tilts of one composition that are cached for the next delta."""

CUTS = (1e-6, 1e-3, 0.5)
"""The parts of a delta that losses may have which count as infinite because a tilt would make them the bulk."""

FEW_POINTS = 1_000_000
"""The largest window that is transformed before nearer losses are tried."""

EXPECTED = 0.5
"""The number of such losses that may be expected under a tilt."""

DOUBT, MOVED = 0.04, (1e-2, 1e-4, 1e-6)
"""The largest part of a delta that a lower bound gives up, and the parts of losses that the grid moves far, to try."""

BELOW_GRID = 1e-38
"""More than the probability of a step's loss below its grid, which only there moves up by more than a grid step."""

Answer = tuple[float, Tail | None]
"""The least certified epsilon at a delta, and a tail that has this delta on both sides there."""

_RATIO = 1.1
_NEARER_FACTORS = (1.0, 0.95, 1.05, 0.9, 0.8)
_ATTEMPTS, _BISECTIONS = 30, 6

_MORE = 2
"""The number of further tilts after one with an imprecise result."""

STRIDE = 2.0
"""Standard deviations between the end of one tilt's range and the middle of the next."""


class ComposedLosses:
    """The privacy profile of independent losses in one direction: `parts` are losses with their multiplicities."""

    def __init__(self, parts: Sequence[tuple[Losses, int]]) -> None:
        self._parts = sorted(parts, key=lambda part: -part[1])
        self._interval = parts[0][0].interval
        self._steps = sum(count for _, count in parts)
        self._infinite = sum(count * losses.infinite for losses, count in parts)
        self._highest = sum(count * losses.last_grid_point for losses, count in parts)
        self._lowest = sum(count * losses.lowest for losses, count in parts)
        self._outline = Outline.from_parts(self._parts)
        self._steepest = 1 / self._interval
        self._sequence: list[Tail | None] = []
        self._answers: dict[float, Answer] = {}
        self._recent: dict[float, Tail | None] = {}

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that is certified at `delta`; infinity if infinite losses alone exceed it.

        Raises UnsupportedEvent if rounding would be more than `LARGEST_TOLERANCE` of delta.
        """
        if self._infinite > delta:
            return math.inf
        certified = self._certified_epsilon_and_tail(delta)[0]
        if certified < math.inf:
            return certified
        raise UnsupportedEvent(
            f"PLD loses too many digits at delta={delta_text_rounded_down(delta)}, or needs too much memory; use RDP."
        )

    def epsilon_lower_bound(self, delta: float) -> float:
        """An epsilon that the losses before they were put on the grid force at `delta`; 0 if no tilt decides it.

        The grid moves a loss X of one step to a grid point Y = X + D, with E[exp(-D) | X] = 1 and D in an interval of
        length h. So 0 <= E[D | X] (Jensen), and ln E[exp(a D) | X] <= (a^2 + a) h^2 / 8 for a >= 0 (Hoeffding's lemma,
        at a and at -1). Losses above the grid move down or are infinite; infinite ones are left out, and so are those
        that were cut off: they only increase delta. For the sums of n steps, and for all theta, s >= 0,

            delta_Y(e) <= delta_X(e - t) + P(Y > e and D > t),
            P(Y > e and D > t) <= E[exp(theta (Y - e) + s (D - t))] <= exp(K(theta) - theta e - s t + (a^2 + a) k),

        where a = theta + s, k = n h^2 / 8, and K is the log-moment of Y. With the best s the last bound is b for t =
        2 sqrt(k (c + k theta (theta + 1))) + k (2 theta + 1), c = K(theta) - theta e - ln b. Here b is one of the parts
        `MOVED` of delta, and theta is that of the tilt, or 0. So the epsilon of X at delta is at least e - t if
        delta_Y(e) is at least delta + b, whatever rounding, infinite losses and wrapped mass add to it.
        """
        wanted = delta * (1 + DOUBT)
        tail = self._certified_epsilon_and_tail(wanted)[1] if self._infinite < wanted < 1 else None
        if tail is None:
            return 0.0
        doubt = tail.delta_uncertainty_at(tail.epsilon(wanted)) + self._steps * BELOW_GRID
        spread, best = self._steps * self._interval**2 / 8, 0.0
        for moved in (part * delta for part in MOVED if part * delta + doubt <= wanted - delta):
            epsilon = tail.epsilon(delta + moved + doubt)
            for theta, log in ((0.0, 0.0), (tail.theta, tail.log_chernoff_delta(epsilon))):
                most = spread * (log - math.log(moved) + spread * theta * (theta + 1))
                best = max(best, epsilon - 2 * math.sqrt(most) - spread * (2 * theta + 1))
        return best

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta at each epsilon >= 0, by the first tilt of a fixed sequence that covers the epsilon.

        Between the ranges of two tilts, and above the last, Chernoff's bounds take their place.
        """
        points = np.asarray(epsilons, dtype=float)
        deltas = np.full(points.shape, self._infinite)
        finite = points < self._interval * self._highest
        end, least, last = -math.inf, 1.0, None
        for step in range(_ATTEMPTS):
            if not (finite & (points > end)).any() or least < FLOOR + self._infinite:
                break
            tilt = self._tail_at_place_in_sequence(step)
            if tilt is None:
                break
            reached = finite & (points > end) & (points <= tilt.highest_epsilon)
            inside = reached & (points >= tilt.lowest_epsilon)
            deltas[reached] = _least_of_delta_and_chernoff(least, points[reached], last, tilt)
            deltas[inside] = np.minimum(least, tilt.delta(points[inside]))
            end, last = tilt.highest_epsilon, tilt
            least = min(least, float(tilt.delta(np.array([end]))[0]))
        above = finite & (points > end)
        deltas[above] = _least_of_delta_and_chernoff(least, points[above], last)
        return np.asarray(np.minimum(1.0, deltas))

    def _tail_at_place_in_sequence(self, step: int) -> Tail | None:
        """The tilt at this place of the sequence, which begins at theta 0; neighbouring ranges overlap if possible.

        None after the end of the sequence.
        """
        while len(self._sequence) <= step:
            last = self._sequence[-1] if self._sequence else None
            self._sequence.append(
                self._next_tail_in_sequence(last) if last is not None else self._tail_at_theta(0.0, TOLERANCE)
            )
        return self._sequence[step]

    def _next_tail_in_sequence(self, last: Tail) -> Tail | None:
        """The next tilt of the sequence; None if no tilt reaches further than the last."""
        deviation = math.sqrt(self._outline.cumulants(last.theta)[2])
        start = self._theta_of_epsilon(last.highest_epsilon + STRIDE * deviation)
        detached = None
        for tolerance in (TOLERANCE, LARGEST_TOLERANCE):
            theta = start
            for _ in range(_BISECTIONS):
                tilt = self._tail_at_theta(theta, tolerance)
                if tilt is not None and tilt.lowest_epsilon <= last.highest_epsilon < tilt.highest_epsilon:
                    return tilt
                detached = tilt or detached
                back = tilt is None or tilt.lowest_epsilon > last.highest_epsilon
                theta = (theta + last.theta) / 2 if back else 1.2 * theta
        return detached if detached is not None and detached.highest_epsilon > last.highest_epsilon else None

    def _certified_epsilon_and_tail(self, delta: float) -> Answer:
        """What is known at `delta`: from the losses as they are or, where no tilt of them decides it, from nearer ones.

        Where the tail takes the mass at a tilt next to the proposed one, and many points, the nearer losses come first.
        """
        if delta not in self._answers:
            theta = self._theta_of_delta(delta) * _RATIO
            first, last, *_ = self._window_and_log_mass_outside(theta)
            taken = last - first > FEW_POINTS and (
                self._outline.expected_number_of_largest_losses(CUTS[0] * delta, theta) > EXPECTED
            )
            nearer = (self._with_largest_losses_infinite(delta, part) for part in CUTS)
            answer: Answer = (math.inf, None)
            for losses in chain(nearer, (self,)) if taken else chain((self,), nearer):
                answer = min(
                    answer, losses._search_certified_epsilon_and_tail(delta, losses is self), key=lambda one: one[0]
                )
                if answer[1] is not None:
                    break
            self._answers[delta] = answer
        return self._answers[delta]

    def _with_largest_losses_infinite(self, delta: float, part: float) -> ComposedLosses:
        """The same composition; the largest losses, which have at most this part of `delta` together, are infinite.

        Every kind of step has an equal share, whatever its multiplicity.
        """
        share = part * delta / len(self._parts)
        return ComposedLosses(
            [(losses.with_largest_losses_infinite(share / count), count) for losses, count in self._parts]
        )

    def _search_certified_epsilon_and_tail(self, delta: float, whole: bool) -> Answer:
        """The least certified epsilon at `delta`, and the tail that has delta on both sides there, if there is one."""
        if self._infinite > delta:
            return math.inf, None
        best = self._theta_of_delta(delta)
        if whole and best > 0:  # such that similar deltas have the same tilts
            best = _RATIO ** round(math.log(best, _RATIO))
        thetas = (
            (best, *self._other_thetas_to_try(best)) if whole else tuple(best * factor for factor in _NEARER_FACTORS)
        )
        attempts = len(thetas)
        certified, enclosing = self._interval * self._highest, None
        certified = certified if certified < LARGEST_SUPPORT else math.inf
        for theta in thetas:
            if certified <= 0 or attempts == 0:
                break
            attempts -= 1
            tilt = self._cached_tail_at_theta(theta)
            if tilt is None:
                continue
            certified = min(certified, tilt.chernoff_epsilon(delta))
            if tilt.scale > LARGEST_SCALE:
                continue
            ends = tilt.delta(np.array([tilt.lowest_epsilon, tilt.highest_epsilon]))
            if ends[0] <= delta:
                certified = min(certified, max(0.0, tilt.lowest_epsilon))
            elif ends[1] <= delta:
                epsilon = max(0.0, tilt.epsilon(delta))
                if epsilon <= certified:
                    certified, enclosing = epsilon, tilt
                attempts = min(attempts, _MORE)
                if tilt.delta_rounding_at(epsilon) <= TOLERANCE * delta:
                    break
        return certified, enclosing

    def _other_thetas_to_try(self, theta: float) -> Iterator[float]:
        """Other tilts, for a delta that the proposed tilt does not reach: near ones first, then smaller and larger."""
        start = max(theta, 1e-3)
        for factor in (0.9, 1.1, 0.75, 1.3, 0.6, 1.6, 0.45, 2.0, 0.3, 0.2, 0.1, 0.05, 0.02, 0.0, 3.0, 6.0, 20.0):
            yield min(self._steepest, start * factor)

    def _cached_tail_at_theta(self, theta: float) -> Tail | None:
        """The tilt; the last few are cached, because similar deltas need the same one."""
        if theta not in self._recent:
            if len(self._recent) == CACHE_SIZE:
                del self._recent[next(iter(self._recent))]
            self._recent[theta] = self._tail_at_theta(theta, LARGEST_TOLERANCE)
        return self._recent[theta]

    def _theta_of_delta(self, delta: float) -> float:
        def excess(theta: float) -> float:
            log, mean, variance = self._outline.cumulants(theta)
            peak = math.log1p(theta * math.sqrt(2 * math.pi * variance)) + math.log1p(theta)
            return log - theta * mean - peak - math.log(delta)

        return zero_of_decreasing(excess, self._steepest)

    def _theta_of_epsilon(self, epsilon: float) -> float:
        return zero_of_decreasing(lambda theta: epsilon - self._outline.cumulants(theta)[1], self._steepest)

    def _window_and_log_mass_outside(self, theta: float) -> tuple[int, int, float, float]:
        """First and last grid point of the window, and logarithms of bounds on mass outside (Chernoff's, at one point).

        The first is the mean of exp(theta loss) over losses below the window, the second the mass above it, untilted.
        """
        log, _, variance = self._outline.cumulants(theta)
        unit = 1 / math.sqrt(max(variance, self._interval**2))
        shifts = unit * 2.0 ** np.arange(-4, 6)
        ahead = [(self._outline.cumulants(theta + shift)[0] - log + OUTSIDE) / shift for shift in shifts]
        behind = [(self._outline.cumulants(theta - shift)[0] - log + OUTSIDE) / shift for shift in shifts]
        first = min(max(self._lowest, math.floor(-min(behind) / self._interval) - 8), self._highest)
        below = above = -math.inf
        if first > self._lowest:
            shift = float(shifts[int(np.argmin(behind))])
            below = self._log_moment(theta - shift) + shift * self._interval * (first - 1)
        last = min(self._highest, math.ceil(min(ahead) / self._interval) + 8)
        if last < self._highest:
            last = max(last, first + SMALLEST_WINDOW)
            point = theta + float(shifts[int(np.argmin(ahead))])
            above = self._log_moment(point) - point * self._interval * (last + 1)
        return first, last, below, above

    def _log_moment(self, theta: float) -> float:
        return sum(count * losses.log_moment(theta) for losses, count in self._parts)

    def _tail_at_theta(self, theta: float, tolerance: float) -> Tail | None:
        """The tail at this theta, where rounding is below `tolerance`; None if the window has too many points."""
        first, last, below, beyond = self._window_and_log_mass_outside(theta)
        size = fft.next_fast_len(max(SMALLEST_WINDOW, last - first + 1), real=True)
        if size > LARGEST_WINDOW:
            return None
        masses, log, error = tilted_composition_with_error_bound(self._parts, theta, size)
        weights = np.roll(masses, -(first % size))[: last - first + 1]
        del masses
        np.maximum(weights, 0.0, out=weights)
        centre = first + int(np.searchsorted(np.cumsum(weights), weights.sum() / 2))
        ahead = np.arange(first - centre, last + 1 - centre, dtype=float)
        ahead *= self._interval
        fading = exp_in_place_with_limit(-theta * ahead)
        weights *= fading
        mass = sums_above(weights)
        weights *= exp_in_place_with_limit(-ahead)
        weighted = sums_above(weights)
        del weights
        rounding = error * norm_of_tilted_error_weights(theta, self._interval, len(mass))
        slack = 4 * (len(mass) + 64) * UNIT
        scale = log - theta * self._interval * centre
        deltas = exp_in_place_with_limit(ahead.copy())
        deltas *= weighted
        np.subtract(mass, deltas, out=deltas)
        np.maximum(deltas, 0.0, out=deltas)
        fading *= rounding
        errors = slack * mass
        errors += fading
        past = math.exp(min(0.0, beyond + self._steps * ONE_STEP)) if beyond > -math.inf else 0.0
        errors += math.exp(min(700.0, math.log(max(past, 1e-300)) - scale)) if past else 0.0
        outside = (theta + 1) * np.abs(ahead) > LARGEST_EXPONENT
        good = (errors <= tolerance * deltas) & ~outside
        low, high = interval_of_good_points(
            good if good.any() else (errors <= LARGEST_TOLERANCE * deltas) & ~outside, centre - first
        )
        return Tail(
            theta=theta,
            interval=self._interval,
            first=first + low,
            centre=centre,
            scale=scale,
            mass=mass[low : high + 1].copy(),
            weighted=weighted[low : high + 1].copy(),
            rounding=rounding,
            slack=slack,
            beyond=self._infinite + past,
            wrapped=sum(
                math.exp(min(0.0, outside - log + LOG_MOMENT))
                for outside in (below, beyond + theta * self._interval * (last + 1))
            ),
        )


def _least_of_delta_and_chernoff(delta: float, points: np.ndarray, *tilts: Tail | None) -> np.ndarray:
    """The least of a delta at a smaller epsilon and of Chernoff's bounds, at each point."""
    return reduce(np.minimum, (tilt.chernoff_delta(points) for tilt in tilts if tilt), np.full(points.shape, delta))
