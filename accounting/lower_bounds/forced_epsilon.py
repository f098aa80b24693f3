"""Lower bounds on epsilon from the losses that PLD prices Gaussian steps by.

The grid moves a loss X of one step to a grid point Y = X + D, with E[exp(-D) | X] = 1 and D in an interval of length h.
So 0 <= E[D | X] (Jensen), and ln E[exp(a D) | X] <= (a^2 + a) h^2 / 8 for a >= 0 (Hoeffding's lemma, at a and at -1).
Losses above the grid move down or are infinite; infinite ones are left out, and so are those that were cut off: they
only increase delta. For the sums of n steps, and for all theta, s >= 0,

    delta_Y(e) <= delta_X(e - t) + P(Y > e and D > t),
    P(Y > e and D > t) <= E[exp(theta (Y - e) + s (D - t))] <= exp(K(theta) - theta e - s t + (a^2 + a) k),

where a = theta + s, k = n h^2 / 8, and K is the log-moment of Y. With the best s the last bound is b for t = 2 sqrt(k
(c + k theta (theta + 1))) + k (2 theta + 1), c = K(theta) - theta e - ln b. Here b is one of the parts `MOVED` of
delta, and theta is that of the tilt, or 0. So the epsilon of X at delta is at least e - t if delta_Y(e) is at least
delta + b, whatever rounding, infinite losses and wrapped mass add to it.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from dpsweep.accounting.accountants.interface import Accountant, gaussian_part
from dpsweep.accounting.accountants.pld import KINDS_OF_STEP, Pld, composed_losses, width_of_losses
from dpsweep.accounting.events.types import DpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles.composition import CUTS, LOG_MOMENT, ComposedLosses, Tail
from dpsweep.accounting.profiles.derived_profiles import replaced_step
from dpsweep.accounting.profiles.privacy_profiles import CLOSED_FORM, poisson_step

DOUBT, MOVED = 0.04, (1e-2, 1e-4, 1e-6)
"""The largest part of a delta that a lower bound gives up, and the parts of losses that the grid moves far, to try."""

BELOW_GRID = 1e-38
"""More than the probability of a step's loss below its grid, which only there moves up by more than a grid step."""

FINER, FEW_POINTS = 4, 400_000
"""How much finer the grid of a lower bound is, unless it has more points: its step costs a part of the bound."""

RELATIVE = 1e-9
"""More than the relative error of an epsilon that is the root of a closed form, or of quotients of noise."""


@runtime_checkable
class LowerBounds(Protocol):
    """An accountant whose own analysis bounds epsilon from below too: a cross-check of others, never a claim.

    It is that of exact noise: rounding is post-processing of it, which may make the true epsilon a little smaller.
    """

    def lower(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """A lower bound on the true epsilon; 0 if there is none."""


def lower_bound_of_accountant(accountant: Accountant, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
    """The lower bound by this accountant's analysis; 0 if it has none."""
    if isinstance(accountant, Pld):
        return forced_epsilon(event, delta, adjacency, accountant)
    return accountant.lower(event, delta, adjacency) if isinstance(accountant, LowerBounds) else 0.0


def forced_epsilon(event: DpEvent, delta: float, adjacency: Adjacency, accountant: Pld | None = None) -> float:
    """For Gaussian steps, the lower bound that follows from their discretisation; 0 for any other event.

    *Guarantee*: no more than the true epsilon of exact noise, floating-point errors included. A record that adds its
    norm bound in one direction to each of its sums, among records that add nothing, has these very losses, in both
    directions. There is none if noise multipliers were rounded down, if a step has no noise, or if no tilt decides on
    which side delta is.
    """
    pld = accountant or Pld()
    steps, others = gaussian_part(event, adjacency)
    kept, _ = gaussian_part(event, adjacency, KINDS_OF_STEP)
    if others or not steps or len(kept) < len(steps) or any(step.noise_multiplier == 0 for step in steps):
        return 0.0
    if all(step.sample_rate == 1 for step in steps) or (len(steps) == 1 and steps[0].count == 1):
        forced = pld.profile(event, adjacency).epsilon(delta * (1 + 3 * CLOSED_FORM))
    else:
        one_step = [
            (step.sample_rate, step.noise_multiplier, step.count)
            if step.sample_rate < 1
            else (1.0, step.noise_multiplier / math.sqrt(step.count), 1)
            for step in steps
        ]
        step_of = replaced_step if adjacency is Adjacency.REPLACE_ONE else poisson_step
        parts = [(step_of(rate, noise), count) for rate, noise, count in one_step]
        span = max(width_of_losses(steps), *(one.reach for both, _ in parts for one in both))
        whole = pld.grid_step(parts, steps)
        interval = max(whole / FINER, min(whole, span / FEW_POINTS))
        forced = max(forced_by_losses(losses, delta) for losses in composed_losses(parts, interval))
    return max(0.0, forced * (1 - RELATIVE) - 1e-9) if math.isfinite(forced) else 0.0


def forced_by_losses(losses: ComposedLosses, delta: float) -> float:
    """An epsilon that the losses before they were put on the grid force at `delta`; 0 if no tilt decides it."""
    wanted = delta * (1 + DOUBT)
    if not losses.infinite < wanted < 1:
        return 0.0
    cut = (losses.nearer(part * (wanted - losses.infinite)) for part in dict(CUTS))
    return next((forced for near in cut if (forced := _forced_by_tilt(near, delta, wanted)) > 0), 0.0)


def _forced_by_tilt(losses: ComposedLosses, delta: float, wanted: float) -> float:
    tail = Tail(losses, wanted - losses.infinite)
    theta, h, end = tail.theta, tail.interval, tail.first + len(tail.mass) - 1
    first, last, down, up = losses.window(theta)
    log = losses.log_moment(theta) - LOG_MOMENT
    below = losses.log_moment(theta - down) + down * h * (first - 1) - log if first > losses.lowest else -math.inf
    above = losses.log_moment(theta + up) - up * h * (last + 1) - log if last < losses.highest else -math.inf

    def log_chernoff(epsilon: float) -> float:
        return tail.scale - theta * (epsilon - h * tail.centre) + LOG_MOMENT

    epsilon = tail.epsilon(wanted)
    at = math.floor(epsilon / h) - tail.first if math.isfinite(epsilon) else -1
    if not 0 <= at < len(tail.mass) - 1:
        return 0.0
    # the part of the bound that finite losses may not have: rounding, losses above the window, and wrapped ones
    fading = math.exp(log_chernoff(epsilon))
    rounding = tail.rounding * fading + math.exp(tail.scale) * tail.slack * float(tail.mass[at])
    wrapped = math.exp(min(0.0, below)) + math.exp(min(0.0, above))
    doubt = 2 * math.exp(theta * h) * rounding + tail.beyond + wrapped * fading + losses.steps * BELOW_GRID
    spread, best = losses.steps * h**2 / 8, 0.0
    for moved in (part * delta for part in MOVED if part * delta + doubt <= wanted - delta):
        epsilon = min(tail.epsilon(delta + moved + doubt), h * end)
        for tilt, chernoff in ((0.0, 0.0), (theta, log_chernoff(epsilon))):
            most = spread * (chernoff - math.log(moved) + spread * tilt * (tilt + 1))
            best = max(best, epsilon - 2 * math.sqrt(max(0.0, most)) - spread * (2 * tilt + 1))
    return best
