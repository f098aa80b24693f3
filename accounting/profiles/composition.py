"""Privacy losses of a step on a grid, compositions of them, and their tails, by Fourier transforms of exponentially
tilted distributions.

A Fourier transform rounds every probability by about 1e-16 of the largest one, so a plain transform cannot resolve the
tail that determines a small delta. Here each step's losses are weighted by exp(theta loss) before the transform, with
theta at the saddle point of the requested delta or epsilon. The tail becomes the bulk, and the rounding error is a
small part of delta instead of a constant. With K the sum of the steps' log-moments at theta and P the tilted
composition,

    delta(e) = infinite + exp(K - theta e) sum over x = loss - e > 0 of (1 - exp(-x)) exp(-theta x) P(loss).

Every tilt bounds delta at every epsilon, outside its window by Chernoff's bound, so the least of several tilts counts:
those near the saddle point for one delta, and a ladder of tilts whose ranges meet for a whole profile.

*Guarantee*: every result is an upper bound for the input distributions, including floating-point errors. These terms
are added to the computed delta:

* Losses beyond the transform's window: exp(K(t) - t top), Chernoff's bound at one t > theta. Mass that wraps around
  into the window only increases P.
* The transform. In a sum of N terms, computed by a Cooley-Tukey algorithm in log2 N levels of complex products and
  sums, the error of each term is at most about 7 log2 N units of rounding (Higham 2002, Accuracy and Stability of
  Numerical Algorithms, Theorem 24.2, with weights correct to one unit); the code counts 16. So the error `e` of each
  value y of the one-step transform is at most that number times the sum of the tilted probabilities, which is 1, plus
  the rounding of the tilt. The error of the power n is at most A^n ((1 + 2 e)^n - 1) with A = max(|y|, 1/2); that it
  is the exponential of n logarithms costs n times less than ten units, which are among the counted ones. By
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
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import chain

import numpy as np
from scipy import fft

from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.notation import delta_text_rounded_down

UNIT = 2.0**-53
LEVEL, ONE_STEP = 16 * UNIT, 1e-13
"""The relative rounding error of one level of a transform, and of a probability of one step."""

LOG_MOMENT, SUM = 1e-6, 1e-9
"""More than the rounding of a log-moment of millions of steps, and than the relative one of a sum of probabilities."""

LARGEST_EXPONENT, LARGEST_SCALE, NEGLIGIBLE = 300.0, 700.0, 80.0
"""A tail is summed where its weights are within the range of float64, and multiplied by an exponential that is; minus
the logarithm of a transform's values that count as 0."""

TOLERANCE, LARGEST_TOLERANCE = 2e-4, 2e-2
"""The part of a delta that may be rounding: the goal, and the largest with which few more tilts are tried."""

FLOOR, OUTSIDE = 1e-40, 32.0
"""The smallest delta that a ladder reaches; minus the logarithm of the tilted mass meant to lie beside a window."""

SMALLEST_WINDOW, LARGEST_WINDOW, LARGEST_SUPPORT = 256, 12_000_000, 1000.0
"""Grid points of a window; the largest possible loss is returned as epsilon only up to the last value."""

KEPT, FEW_POINTS = 3, 1_000_000
"""The tilts of a composition that are kept for the next delta; the largest window that comes before nearer losses."""

CUTS = (1e-6, 1e-3, 0.5)
"""The parts of a delta that losses may have which count as infinite because a tilt would make them the bulk."""

FACTORS, MORE = (1.0, 0.95, 1.05, 0.9, 0.8, 0.6), 2
"""The tilts that are tried for a delta, over the one that is meant for it, and how many after a rough answer."""

RATIO, SMALLEST_TILT = 1.1, 1e-9
"""The quotient of neighbours among tilts for deltas, so that similar deltas have the same one; the least but 0."""

RUNGS, STRIDE, SHORTER = 40, 4.0, 20
"""The most tilts of a ladder, the distance of two in standard deviations of both, and how often it may be shortened."""

DOUBT, MOVED = 0.04, (1e-2, 1e-4, 1e-6)
"""The largest part of a delta that a lower bound gives up, and the parts of losses that the grid moves far, to try."""

BELOW_GRID = 1e-38
"""More than the probability of a step's loss below its grid, which only there moves up by more than a grid step."""

NEAR, GROWTH = 64, 1.02
"""Grid points around 0 that are single groups in an outline, and the growth factor of the groups beyond."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """A discrete privacy-loss distribution on a grid.

    `probabilities[i]` is the probability of the loss `interval * (lowest + i)`, `infinite` that of an infinite loss.
    """

    lowest: int
    interval: float
    probabilities: np.ndarray
    infinite: float

    @cached_property
    def values(self) -> np.ndarray:
        """The losses in nats."""
        return np.asarray(self.interval * (self.lowest + np.arange(len(self.probabilities))))

    @cached_property
    def log_probabilities(self) -> np.ndarray:
        """Logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.probabilities))

    @property
    def last_grid_point(self) -> int:
        """The last grid point."""
        return self.lowest + len(self.probabilities) - 1

    def with_largest_losses_infinite(self, mass: float) -> Losses:
        """These losses, with the largest ones counted as infinite: as many as have at most `mass` together.

        *Guarantee*: every delta is at least that of these losses, as a loss only grows.
        """
        sums = np.cumsum(self.probabilities[::-1])
        lost = min(int(np.searchsorted(sums, mass, side="right")), max(0, self.last_grid_point - 1))
        if lost == 0:
            return self
        return replace(
            self,
            probabilities=self.probabilities[:-lost],
            infinite=self.infinite + float(sums[lost - 1]) * (1 + SUM),
        )

    def tilt(self, theta: float) -> tuple[np.ndarray, float]:
        """Probabilities multiplied by exp(theta loss) and normalised, and the logarithm of the normaliser."""
        exponents = theta * self.values
        exponents += self.log_probabilities
        most = float(exponents.max())
        exponents -= most
        weights = np.exp(exponents, out=exponents)
        total = float(weights.sum())
        weights /= total
        return weights, most + math.log(total)

    def outline(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log-probabilities, means and variances of groups of neighbouring losses, narrow near 0."""
        far = max(abs(self.lowest), abs(self.last_grid_point), NEAR) + 1
        growing = NEAR * GROWTH ** np.arange(math.ceil(math.log(far / NEAR) / math.log(GROWTH)) + 1)
        ahead = np.concatenate([np.arange(NEAR), growing.astype(np.int64)])
        edges = np.unique(np.clip(np.concatenate([-ahead, ahead]) - self.lowest, 0, len(self.probabilities) - 1))
        masses, first, second = (np.add.reduceat(self.probabilities * self.values**power, edges) for power in range(3))
        kept = masses > 0
        means = first[kept] / masses[kept]
        return np.log(masses[kept]), means, np.maximum(0.0, second[kept] / masses[kept] - means**2)


def _sums_above(weights: np.ndarray) -> np.ndarray:
    """Sums over all later points; 0 at the last point."""
    return np.append(np.cumsum(weights[:0:-1])[::-1], 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tail:
    """The tail of a composition above each grid point from `first`, at one tilt, with bounds on its errors.

    With c the loss at `centre`: `mass` sums P exp(-theta (loss - c)) above a point, and `weighted` sums the same times
    exp(-(loss - c)). Both must be multiplied by exp(`scale`). The error of delta(e) is at most `rounding` exp(-theta (e
    - c) + scale) plus the fraction `slack` of the mass; `infinite` and `past` are added for losses that are infinite or
    above the window, and a tilted mass of at most `wrapped` comes from losses outside it.
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
    past: float
    infinite: float
    wrapped: float

    @cached_property
    def middle(self) -> float:
        """The epsilon at the middle of the tilted distribution."""
        return self.interval * self.centre

    @cached_property
    def highest_epsilon(self) -> float:
        """The largest epsilon in the window."""
        return self.interval * (self.first + len(self.mass) - 1)

    def log_chernoff(self, epsilon: float) -> float:
        """log-moment - theta epsilon, the logarithm of Chernoff's bound on finite losses above any epsilon."""
        return self.scale - self.theta * (epsilon - self.middle) + LOG_MOMENT

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds at any epsilons; above the window no more than at its end."""
        ahead = epsilons - self.middle
        fading = np.exp(np.minimum(self.scale - self.theta * ahead, LARGEST_EXPONENT))
        deltas = np.minimum(1.0, fading * math.exp(LOG_MOMENT))
        if self.scale <= LARGEST_SCALE:
            end = self.highest_epsilon - self.middle
            at = np.clip(np.floor(epsilons / self.interval) - self.first, -1, len(self.mass) - 1).astype(np.int64)
            mass = self.mass[at]
            sums = np.maximum(0.0, mass - np.exp(np.minimum(ahead, end)) * self.weighted[at]) + self.slack * mass
            rounding = self.rounding * np.maximum(fading, math.exp(self.scale - self.theta * end))
            deltas = np.where(at < 0, deltas, np.minimum(deltas, math.exp(self.scale) * sums + rounding))
        return np.asarray(deltas + self.infinite + self.past)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 at which the bound is at most delta, rounded up; infinity if there is none."""
        if self.theta == 0 or delta <= self.infinite + self.past:
            high = self.highest_epsilon
        else:
            log = math.log(delta - self.infinite - self.past)
            high = max(0.0, (self.middle + (self.scale + LOG_MOMENT - log) / self.theta) * (1 + 1e-12)) + 1e-12
        low = 0.0
        if self._delta_at(low) <= delta:
            return low
        if self._delta_at(high) > delta:
            return math.inf
        while high - low > 1e-13 * max(1e-3, high):
            middle = (low + high) / 2
            low, high = (middle, high) if self._delta_at(middle) > delta else (low, middle)
        return high

    def _delta_at(self, epsilon: float) -> float:
        return float(self.delta(np.array([epsilon]))[0])

    def doubt(self, epsilon: float) -> float:
        """The part of the bound at `epsilon` that finite losses may not have; infinity outside the window.

        These are rounding, losses above the window, and those that wrapped around into it. It falls with epsilon. The
        rounding at a grid point counts up to the next one.
        """
        at = math.floor(min(epsilon, self.highest_epsilon + self.interval) / self.interval) - self.first
        if not 0 <= at < len(self.mass) - 1 or self.scale > LARGEST_SCALE:
            return math.inf
        fading = math.exp(self.log_chernoff(epsilon))
        rounding = self.rounding * fading + math.exp(self.scale) * self.slack * float(self.mass[at])
        return 2 * math.exp(self.theta * self.interval) * rounding + self.past + self.wrapped * fading


Answer = tuple[float, Tail | None]
"""The least certified epsilon at a delta, and the tail that proves it; None if the largest loss does."""


class ComposedLosses:
    """The privacy profile of independent losses in one direction: `parts` are losses with their multiplicities."""

    def __init__(self, parts: Sequence[tuple[Losses, int]]) -> None:
        self._parts = sorted(parts, key=lambda part: -part[1])
        self._interval = parts[0][0].interval
        self._steps = sum(count for _, count in parts)
        self._infinite = sum(count * losses.infinite for losses, count in parts)
        self._highest = sum(count * losses.last_grid_point for losses, count in parts)
        self._lowest = sum(count * losses.lowest for losses, count in parts)
        self._outlines = [(losses.outline(), count) for losses, count in self._parts]
        self._ladder: list[Tail | None] = []
        self._answers: dict[float, Answer] = {}
        self._kept: dict[float, Tail | None] = {}

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that is certified at `delta`; infinity if infinite losses alone exceed it.

        Raises UnsupportedEvent if no tilt has a window, or if rounding alone exceeds delta under every tilt.
        """
        if self._infinite > delta:
            return math.inf
        certified, _ = self._answer(delta)
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
        tail = self._answer(wanted)[1] if self._infinite < wanted < 1 else None
        if tail is None:
            return 0.0
        doubt = tail.doubt(tail.epsilon(wanted)) + tail.infinite + self._steps * BELOW_GRID
        spread, best = self._steps * self._interval**2 / 8, 0.0
        for moved in (part * delta for part in MOVED if part * delta + doubt <= wanted - delta):
            epsilon = min(tail.epsilon(delta + moved + doubt), tail.highest_epsilon)
            for theta, log in ((0.0, 0.0), (tail.theta, tail.log_chernoff(epsilon))):
                most = spread * (log - math.log(moved) + spread * theta * (theta + 1))
                best = max(best, epsilon - 2 * math.sqrt(most) - spread * (2 * theta + 1))
        return best

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta at each epsilon >= 0: the least of a ladder of tilts, which reaches down to `FLOOR`."""
        points = np.asarray(epsilons, dtype=float)
        deltas, most, behind = np.ones(points.shape), float(points.max(initial=0.0)), -math.inf
        tail: Tail | None = None
        for rung in range(RUNGS):
            if rung == len(self._ladder):
                self._ladder.append(self._tail(0.0) if tail is None else self._next_rung(tail.theta))
            if (tail := self._ladder[rung]) is None:
                break
            ahead = points >= (behind + tail.middle) / 2
            deltas[ahead] = np.minimum(deltas[ahead], tail.delta(points[ahead]))
            behind = tail.middle
            if tail.middle >= most or tail.log_chernoff(tail.middle) < math.log(FLOOR):
                break
        return np.where(points < self._interval * self._highest, deltas, np.minimum(deltas, self._infinite))

    def _next_rung(self, theta: float) -> Tail | None:
        """The tail whose middle is a stride from that of theta's; None if there is none in a window."""
        _, mean, variance = self._cumulants(theta)
        step = 2 * STRIDE / math.sqrt(max(variance, self._interval**2))
        for _ in range(SHORTER):
            _, further, spread = self._cumulants(theta + step)
            if further - mean < 2 * STRIDE * math.sqrt(min(variance, spread)) and (tail := self._tail(theta + step)):
                return tail
            step /= 1.5
        return None

    def _answer(self, delta: float) -> Answer:
        """The least epsilon at `delta` of the tilts that are tried: few more after one that decides it roughly."""
        if delta not in self._answers:
            top, left = self._interval * self._highest, math.inf
            best: Answer = (top if top < LARGEST_SUPPORT else math.inf, None)
            for losses, theta in self._tilts_to_try(delta):
                if (tail := losses._kept_tail(theta)) is not None:
                    if (epsilon := tail.epsilon(delta)) <= best[0]:
                        best = epsilon, tail
                    if epsilon == 0 or (doubt := tail.doubt(epsilon)) <= TOLERANCE * delta:
                        break
                    left = min(left, MORE) if doubt <= LARGEST_TOLERANCE * delta else left
                if (left := left - 1) < 0:
                    break
            self._answers[delta] = best
        return self._answers[delta]

    def _tilts_to_try(self, delta: float) -> Iterator[tuple[ComposedLosses, float]]:
        """Thetas of these losses, and of nearer ones: the largest, which have at most a part of `delta`, are infinite.

        Every kind of step has an equal share, whatever its multiplicity. Of a wide window, nearer ones come first.
        """
        first, last, *_ = self._window(self._theta_of_delta(delta))
        shares = (part * delta / len(self._parts) for part in CUTS)
        nearer = (
            ComposedLosses(
                [(losses.with_largest_losses_infinite(share / count), count) for losses, count in self._parts]
            )
            for share in shares
        )
        for losses in chain(nearer, (self,)) if last - first > FEW_POINTS else chain((self,), nearer):
            theta = losses._theta_of_delta(delta)
            yield from ((losses, theta * factor) for factor in FACTORS)

    def _kept_tail(self, theta: float) -> Tail | None:
        """The tail; the last few are kept, because similar deltas need the same one."""
        if theta not in self._kept:
            if len(self._kept) == KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[theta] = self._tail(theta)
        return self._kept[theta]

    def _cumulants(self, theta: float) -> tuple[float, float, float]:
        """The log-moment of the composition at theta with its first two derivatives, by outlines: no bounds."""
        total = np.zeros(3)
        for (logs, means, variances), count in self._outlines:
            exponents = logs + theta * means + np.minimum(theta**2 * variances / 2, 50.0)
            most = float(exponents.max())
            weights = np.exp(exponents - most)
            norm = float(weights.sum())
            mean = float(weights @ means) / norm
            variance = float(weights @ ((means - mean) ** 2 + variances)) / norm
            total += count * np.array([most + math.log(norm), mean, variance])
        return float(total[0]), float(total[1]), float(total[2])

    def _theta_of_delta(self, delta: float) -> float:
        """A power of `RATIO` near the saddle point of delta; 0 if there is none."""

        def below(theta: float) -> bool:
            log, mean, variance = self._cumulants(theta)
            peak = math.log1p(theta * math.sqrt(2 * math.pi * variance)) + math.log1p(theta)
            return log - theta * mean - peak > math.log(delta)

        if not below(SMALLEST_TILT):
            return 0.0
        least, most = (round(math.log(end, RATIO)) for end in (SMALLEST_TILT, 1 / self._interval))
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if below(RATIO**middle) else (least, middle)
        return RATIO**least

    def _window(self, theta: float) -> tuple[int, int, float, float]:
        """First and last grid point of the window, and logarithms of bounds on mass outside (Chernoff's, at one point).

        The first is the mean of exp(theta loss) over losses below the window, the second the mass above it, untilted.
        """
        log, _, variance = self._cumulants(theta)
        shifts = 2.0 ** np.arange(-4, 6) / math.sqrt(max(variance, self._interval**2))
        (ahead, up), (behind, down) = (
            min(((self._cumulants(theta + sign * shift)[0] - log + OUTSIDE) / shift, shift) for shift in shifts)
            for sign in (1, -1)
        )
        first = min(max(self._lowest, math.floor(-behind / self._interval) - 8), self._highest)
        last = min(self._highest, max(first + SMALLEST_WINDOW, math.ceil(ahead / self._interval) + 8))
        below = above = -math.inf
        if first > self._lowest:
            below = self._log_moment(theta - down) + down * self._interval * (first - 1)
        if last < self._highest:
            above = self._log_moment(theta + up) - (theta + up) * self._interval * (last + 1)
        return first, last, below, above

    def _log_moment(self, theta: float) -> float:
        return sum(count * losses.tilt(theta)[1] for losses, count in self._parts)

    def _tilted(self, theta: float, size: int) -> tuple[np.ndarray, float, float]:
        """The tilted composition modulo `size`, its log-moment, and a bound on the Euclidean norm of its error."""
        level = LEVEL * (math.log2(size) + 4)
        total, relative = 0.0, 4 * UNIT * len(self._parts)
        alive, logs, powers = np.arange(size // 2 + 1), np.zeros(size // 2 + 1), np.zeros(size // 2 + 1, dtype=complex)
        for losses, count in self._parts:
            weights, log = losses.tilt(theta)
            total += count * log
            tilting = float(
                weights @ (np.abs(theta * losses.values) + np.abs(np.maximum(losses.log_probabilities, -800.0)))
            )
            one_step = level + 2 * UNIT * (tilting + abs(log) + len(weights) // size + 8) + ONE_STEP
            relative += 2 * count * one_step
            start = losses.lowest % size
            padded = np.zeros(math.ceil((start + len(weights)) / size) * size)
            padded[start : start + len(weights)] = weights
            values = fft.rfft(reduce(np.add, padded.reshape(-1, size)))[alive]
            lengths = np.log(np.maximum(np.abs(values), 1e-300))
            logs = logs + count * np.maximum(lengths, math.log(0.5))
            powers = powers + count * (lengths + 1j * np.angle(values))
            large = logs > -NEGLIGIBLE
            alive, logs, powers = alive[large], logs[large], powers[large]
        spectrum = np.zeros(size // 2 + 1, dtype=complex)
        spectrum[alive] = np.exp(powers)
        norm = math.expm1(min(50.0, relative)) * math.sqrt(2 * float(np.exp(2 * logs).sum()))
        norm += math.sqrt(size) * 2 * math.exp(-NEGLIGIBLE)
        masses = fft.irfft(spectrum, size)
        return masses, total, norm / math.sqrt(size) + 2 * level * float(np.linalg.norm(masses))

    def _tail(self, theta: float) -> Tail | None:
        """The tail at this theta; None if the window has too many points."""
        first, last, below, above = self._window(theta)
        size = fft.next_fast_len(max(SMALLEST_WINDOW, last - first + 1), real=True)
        if size > LARGEST_WINDOW:
            return None
        masses, log, error = self._tilted(theta, size)
        weights = np.maximum(0.0, np.roll(masses, -(first % size))[: last - first + 1])
        centre = first + int(np.searchsorted(np.cumsum(weights), weights.sum() / 2))
        ahead = self._interval * np.arange(first - centre, last + 1 - centre)
        kept = slice(*np.searchsorted((theta + 1) * ahead, (-LARGEST_EXPONENT, LARGEST_EXPONENT)))
        weights *= np.exp(np.minimum(-theta * ahead, LARGEST_EXPONENT))
        mass = _sums_above(weights)
        weighted = _sums_above(weights * np.exp(np.minimum(-ahead, LARGEST_EXPONENT)))
        # how much the errors at all larger losses may change delta, by Cauchy-Schwarz
        beyond = self._interval * np.arange(1, len(mass) + 1)
        share = float(np.linalg.norm(np.expm1(-beyond) * np.exp(-theta * beyond))) * math.exp(theta * self._interval)
        return Tail(
            theta=theta,
            interval=self._interval,
            first=first + kept.start,
            centre=centre,
            scale=log - theta * self._interval * centre,
            mass=mass[kept].copy(),
            weighted=weighted[kept].copy(),
            rounding=error * share,
            slack=4 * (len(mass) + 64) * UNIT,
            past=math.exp(min(0.0, above + self._steps * ONE_STEP)),
            infinite=self._infinite,
            wrapped=sum(
                math.exp(min(0.0, outside - log + LOG_MOMENT))
                for outside in (below, above + theta * self._interval * (last + 1))
            ),
        )
