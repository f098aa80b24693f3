"""The price of an event as `price.json` has it: an upper bound on epsilon at a delta."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpsweep.reports.recomputation.loss_lattice import (
    FARTHEST,
    MARGIN,
    Array,
    Curve,
    LossLattice,
    NotRecomputed,
    Steps,
    delta_curve_of_one_sampled_step,
    gaussian_delta_curve,
)
from dpsweep.reports.recomputation.renyi_bound import (
    Divergence,
    divergence_of_gaussian_steps,
    negative_binomial_search_divergence,
    poisson_search_divergence,
    pure_divergence,
    renyi_epsilon,
)
from dpsweep.reports.recomputation.search_envelope import delta_curve_of_best_try, extend_curve_to_negative_epsilon

REPLACE, MOST_KINDS, LEAST_NOISE = "replace_one", 2000, 1e-3
"""The adjacency under which a record is replaced, the most kinds of step in a composition, and the least noise."""

NUMBER, LOG_RATIO, TAIL = "RoundedNumberDpEvent", 2.0**-41, 1e-36
"""A rounded number, the log-ratio of its law to that of exact noise, and a tail."""

Event = Mapping[str, Any]


def _is_positive_integer(value: Any) -> bool:
    return isinstance(value, int) and value >= 1


POSSIBLE: Mapping[str, Callable[[Any], bool]] = {
    "count": _is_positive_integer,
    "counts": lambda values: bool(values) and all(map(_is_positive_integer, values)),
    "limit": lambda value: value is None or _is_positive_integer(value),
    "steps": _is_positive_integer,
    "sample_size": _is_positive_integer,
    "source_dataset_size": _is_positive_integer,
    "sampling_probability": lambda value: 0 < value <= 1,
    "noise_multiplier": lambda value: 0 <= value < math.inf,
    "noise_scale": lambda value: 0 < value < math.inf,
    "mean": lambda value: 0 < value < math.inf,
    "eta": lambda value: -1 < value < math.inf,
    "gamma": lambda value: 0 < value <= 1,
    "delta2": lambda value: 0 < value < 1,
}
"""Which values a field of an event, or of a law of the number of tries, can have; nan is none of them."""


def _require_possible_numbers(event: Event) -> None:
    """Raises ValueError for a number that no mechanism has, in an event, its law, or what it samples or repeats."""
    for form in (event, event.get("tries", {}), event.get("event", {})):
        for name in form.keys() & POSSIBLE.keys():
            if isinstance(form[name], bool) or not POSSIBLE[name](form[name]):
                raise ValueError(f"Expected {name}={form[name]!r} to be that of a mechanism.")
    if "sample_size" in event and event["sample_size"] > event["source_dataset_size"]:
        raise ValueError(f"Expected sample_size={event['sample_size']} <= {event['source_dataset_size']}.")


def leaf_events_with_counts(event: Event, times: int = 1) -> list[tuple[Event, int]]:
    """The leaves of a composition with their multiplicities; raises ValueError for numbers that no mechanism has."""
    _require_possible_numbers(event)
    kind = event["type"]
    if kind == "NoOpDpEvent":
        return []
    if kind == "SelfComposedDpEvent":
        return leaf_events_with_counts(event["event"], times * event["count"])
    if kind == "ComposedDpEvent":
        return [leaf for inner in event["events"] for leaf in leaf_events_with_counts(inner, times)]
    return [(event, times)]


def _log_ratio(numbers: int, tail: float) -> float:
    """The log-ratio of so many rounded numbers except with probability d. Dwork, Rothblum, Vadhan 2010, Theorem III.3.

    (1 + exp(e)) d is at most 2 `tail` at every e <= FARTHEST.
    """
    every = numbers * LOG_RATIO
    return min(every, LOG_RATIO * math.sqrt(2 * numbers * (FARTHEST - math.log(tail))) + every * math.expm1(LOG_RATIO))


def _mechanisms_and_numbers(event: Event) -> tuple[list[tuple[Event, int]], int]:
    """The mechanisms of a composition with their multiplicities, and the rounded numbers beside them."""
    parts = leaf_events_with_counts(event)
    mechanisms = [(leaf, count) for leaf, count in parts if leaf["type"] != NUMBER]
    return mechanisms, sum(count for leaf, count in parts if leaf["type"] == NUMBER)


def delta_curves_of_event(event: Event, adjacency: str) -> list[Curve]:
    """The curve of each direction of a mechanism, or one for both: with the rounding of noise."""
    parts, numbers = _mechanisms_and_numbers(event)
    sides = _delta_curves_of_mechanisms(parts, adjacency)
    return [_rounded_curve(*pair, _log_ratio(numbers, TAIL)) for pair in zip(sides, sides[::-1], strict=True)]


def _rounded_curve(one: Curve, other: Curve, x: float) -> Curve:
    """delta(e) becomes exp(x) delta(e - 2 x), and the tail of the log-ratio."""
    extended = extend_curve_to_negative_epsilon(one, other)
    return (lambda points: np.minimum(1.0, math.exp(x) * extended(points - 2 * x) + 2 * TAIL)) if x else one


def _delta_curves_of_mechanisms(parts: Sequence[tuple[Event, int]], adjacency: str) -> list[Curve]:
    steps = [_gaussian_steps_of_leaf(leaf, count, adjacency) for leaf, count in parts]
    if all(step is not None for step in steps):
        return _curves_of_composed_steps([step for step in steps if step is not None])
    if len(parts) > 1 or parts[0][1] > 1 or parts[0][0]["type"] not in _CURVES:
        raise NotRecomputed(f"no tight bound for {' with '.join(sorted({str(leaf['type']) for leaf, _ in parts}))}")
    return _CURVES[parts[0][0]["type"]](parts[0][0], adjacency)


def _gaussian_steps_of_leaf(leaf: Event, count: int, adjacency: str) -> Steps | None:
    """A leaf as Gaussian steps; None if it has none. Replacing a record moves a sum twice as far."""
    kind, replaced, inner = leaf["type"], adjacency == REPLACE, leaf.get("event", {})
    noise = float((inner or leaf).get("noise_multiplier", math.nan))
    if noise <= LEAST_NOISE:
        raise NotRecomputed("a step with so little noise")
    if kind == "EpochDpEvent" and leaf.get("sampling_probability", 1) < 1:  # a cycle: Choquette-Choo et al. 2023
        return "replaced" if replaced else "sampled", float(leaf["sampling_probability"]), 1 / noise, count
    if kind in ("GaussianDpEvent", "EpochDpEvent"):  # an epoch has each record in one step: McSherry 2009, Theorem 4
        return "plain", 1.0, (2 if replaced else 1) / noise, count
    if kind == "StatedGaussianDpEvent" and leaf["adjacency"] in (None, adjacency):
        return "plain", 1.0, 1 / noise, count
    if inner.get("type") != "GaussianDpEvent":
        return None
    if kind == "PoissonSampledDpEvent":
        rate = float(leaf["sampling_probability"])
        pair = "replaced" if replaced else "sampled"
        return _gaussian_steps_of_leaf(inner, count, adjacency) if rate == 1 else (pair, rate, 1 / noise, count)
    if kind == "SampledWithoutReplacementDpEvent" and replaced:
        return "fixed", float(leaf["sample_size"]) / float(leaf["source_dataset_size"]), 2 / noise, count
    return None


def _curves_of_composed_steps(steps: Sequence[Steps]) -> list[Curve]:
    """Gaussian steps together; those without sampling are one Gaussian mechanism."""
    plain = math.sqrt(sum(count * mu**2 for kind, _, mu, count in steps if kind == "plain"))
    counts: dict[tuple[str, float, float], int] = {}
    for kind, rate, mu, count in steps:
        if kind != "plain":
            counts[kind, rate, mu] = counts.get((kind, rate, mu), 0) + count
    if len(counts) > MOST_KINDS:
        raise NotRecomputed(f"{len(counts)} kinds of step")
    if not counts:
        return [gaussian_delta_curve(plain) if plain else lambda points: np.maximum(0.0, -np.expm1(points))]
    kinds = [(*key, count) for key, count in counts.items()] + ([("sampled", 1.0, plain, 1)] if plain else [])
    ways = (0, 1) if any(kind == "sampled" and rate < 1 for kind, rate, _, _ in kinds) else (0,)
    if len(kinds) == 1 and kinds[0][0] == "sampled" and kinds[0][1] < 1 and kinds[0][3] == 1:
        return [delta_curve_of_one_sampled_step(*kinds[0][1:3], way) for way in ways]
    return [LossLattice(kinds, way).delta for way in ways]


def _merge_event_curves_pointwise(leaf: Event, adjacency: str, join: Callable[[Array], Array]) -> list[Curve]:
    inner = [delta_curves_of_event(event, adjacency) for event in leaf["events"]]
    ways = range(max(map(len, inner)))
    return [_merge_curves_pointwise([one[min(way, len(one) - 1)] for one in inner], join) for way in ways]


def _merge_curves_pointwise(sides: Sequence[Curve], join: Callable[[Array], Array]) -> Curve:
    return lambda points: join(np.array([side(points) for side in sides]))


def _curves_of_worst_event(leaf: Event, adjacency: str) -> list[Curve]:
    return _merge_event_curves_pointwise(leaf, adjacency, lambda deltas: np.asarray(deltas.max(axis=0)))


def _least_deltas_over_curves(deltas: Array) -> Array:
    return np.asarray(deltas.min(axis=0))


def _mixture_curves(leaf: Event, adjacency: str) -> list[Curve]:
    """One of several mechanisms by a public draw: the mean of their deltas."""
    shares = np.array(leaf["counts"]) / sum(leaf["counts"])
    return _merge_event_curves_pointwise(
        leaf, adjacency, lambda deltas: np.minimum(1.0, (1 + MARGIN) * (shares @ deltas))
    )


def _noisy_max_curves(leaf: Event, adjacency: str) -> list[Curve]:
    """The exponential mechanism (McSherry and Talwar 2007), as randomised response (Kairouz, Oh, Viswanath 2015)."""
    at = (2 if adjacency == REPLACE else 1) / float(leaf["noise_scale"])
    return [lambda points: -np.expm1(np.minimum(0.0, points - at)) / (1 + math.exp(-at))]


def _selection_curves(leaf: Event, adjacency: str) -> list[Curve]:
    """The envelope bound; where each point runs once, the composition of all runs where that is less."""
    law, each = leaf["tries"], leaf["tries"]["type"] == "EachPoint"
    if leaf["limit"] is not None or law["type"] not in _SLOPES:
        raise NotRecomputed("no tight bound for this law of the number of tries")
    inner = delta_curves_of_event(leaf["event"], adjacency)
    sides = [extend_curve_to_negative_epsilon(one, other) for one, other in zip(inner, inner[::-1], strict=True)]
    if law.get("gamma") == 1 or law.get("count") == 1:
        return inner
    best = [delta_curve_of_best_try(side, _SLOPES[law["type"]](law), each) for side in sides]
    if not each:
        return best
    runs = delta_curves_of_event(
        {"type": "SelfComposedDpEvent", "event": leaf["event"], "count": law["count"]}, adjacency
    )
    return [_merge_curves_pointwise(pair, _least_deltas_over_curves) for pair in zip(best, runs, strict=True)]


def _pgf_derivative_of_negative_binomial(law: Event) -> Curve:
    """Papernot and Steinke 2022, Definition 1: f'(x) is E[K] ((1 - (1 - gamma) x) / gamma)^(-1 - eta)."""
    eta, gamma = float(law["eta"]), float(law["gamma"])
    once = (1 - gamma) / -math.log(gamma)
    if abs(eta) >= 1e-6:
        once = eta * (1 - gamma) / math.expm1(-eta * math.log(gamma))
    return lambda x: once * ((1 - x) + gamma * x) ** (-1 - eta)


_SLOPES: Mapping[str, Callable[[Event], Curve]] = {
    "NegativeBinomial": _pgf_derivative_of_negative_binomial,
    "Poisson": lambda law: lambda x: law["mean"] * np.exp(law["mean"] * (x - 1)),
    "EachPoint": lambda law: lambda x: law["count"] * x ** (law["count"] - 1),
}
"""f' for each law of the number of tries, at x [n] in [0, 1]."""
_CURVES: Mapping[str, Callable[[Event, str], list[Curve]]] = {
    "WorstDpEvent": _curves_of_worst_event,
    "MixtureDpEvent": _mixture_curves,
    "NoisyMaxDpEvent": _noisy_max_curves,
    "SelectionDpEvent": _selection_curves,
}


def epsilon(event: Event, delta: float, adjacency: str, guess: float = 1.0) -> float:
    """An upper bound on epsilon at delta, sought from a guess on."""
    parts = leaf_events_with_counts(event)
    if len(parts) == 1 and parts[0][1] == 1 and parts[0][0]["type"] in _THEOREMS:
        return _THEOREMS[parts[0][0]["type"]](parts[0][0], delta, adjacency)
    return max(_invert_curve(side, delta, guess) for side in delta_curves_of_event(event, adjacency)) if parts else 0.0


def total_variation(event: Event, adjacency: str) -> float:
    """An upper bound on the total variation between neighbours: by delta at 0, or at a larger epsilon.

    At an epsilon it is at most (exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1): Kairouz, Oh, Viswanath 2015.
    """
    if not leaf_events_with_counts(event):
        return 0.0
    points = np.linspace(0.0, 6.0, 13)
    deltas = delta_curves_of_event(event, adjacency)[0](points)
    return float(((np.expm1(points) + 2 * deltas) / (np.exp(points) + 1)).min())


def _invert_curve(side: Curve, delta: float, guess: float) -> float:
    def is_delta_below_target(at: float) -> bool:
        value = float(side(np.array([at]))[0])
        if math.isnan(value):
            raise NotRecomputed("a bound on delta that is no number")
        return value <= delta

    low, high, step = guess, guess, 0.01
    while not is_delta_below_target(high):
        low, high, step = high, high + step, 2 * step
        if high > FARTHEST:
            return math.inf
    while low > 0 and is_delta_below_target(low):
        low, high, step = max(0.0, low - step), low, 2 * step
    while high - low > 1e-6 * min(1.0, max(high, 1e-3)):
        middle = (low + high) / 2
        low, high = (low, middle) if is_delta_below_target(middle) else (middle, high)
    return high


def _epsilon_of_random_stopping(leaf: Event, delta: float, adjacency: str) -> float:
    """Liu and Talwar 2019, Theorem 3.4."""
    gamma, limit, tail = float(leaf["tries"]["gamma"]), int(leaf["tries"]["limit"]), float(leaf["delta2"])
    if tail >= delta or limit < math.log(1 / tail) / gamma * (1 - 1e-12):
        return math.inf
    root = (delta - tail) / limit
    return 3 * epsilon(leaf["event"], root**2 / 2, adjacency) + 3 * root


def _epsilon_of_threshold_search(leaf: Event, delta: float, adjacency: str) -> float:
    """Liu and Talwar 2019, Theorem 3.1, with the constants that dpsweep's docs/accounting.md derives."""
    gamma = float(leaf["tries"]["gamma"])
    tail = (1 - gamma) ** int(leaf["tries"]["limit"])
    if tail >= delta:
        return math.inf
    inner = epsilon(leaf["event"], (delta - tail) * gamma, adjacency)
    return 2 * inner + math.log1p((delta - tail) * math.exp(-inner)) - math.log1p(-tail)


_THEOREMS: Mapping[str, Callable[[Event, float, str], float]] = {
    "RandomStoppingDpEvent": _epsilon_of_random_stopping,
    "ThresholdDpEvent": _epsilon_of_threshold_search,
}
"""Searches with a theorem for one delta at a time."""


def epsilon_by_renyi(event: Event, delta: float, adjacency: str) -> float:
    """An upper bound on epsilon at delta by Renyi divergences; for searches it may be less than that by losses."""
    parts, numbers = _mechanisms_and_numbers(event)
    x = _log_ratio(numbers, 1e-9 * delta)
    return 2 * x + renyi_epsilon(_renyi_divergence(parts, adjacency), (1 - 2e-9 * bool(numbers)) * delta * math.exp(-x))


def _renyi_divergence_of_event(event: Event, adjacency: str) -> Divergence:
    """The divergences of a composition: rounded numbers add at most x (2 a - 1) / (a - 1) at order a."""
    parts, numbers = _mechanisms_and_numbers(event)
    exact, x = _renyi_divergence(parts, adjacency), numbers * LOG_RATIO
    return lambda orders: exact(orders) + x * (2 * orders - 1) / (orders - 1)


def _renyi_divergence(mechanisms: Sequence[tuple[Event, int]], adjacency: str) -> Divergence:
    """The divergences of mechanisms: those of their Gaussian steps together, and of all others."""
    steps, parts = [], []
    for leaf, count in mechanisms:
        step = _gaussian_steps_of_leaf(leaf, count, adjacency)
        if step is not None:
            steps.append(step)
        elif leaf["type"] in _DIVERGENCES:
            parts.append((count, _DIVERGENCES[leaf["type"]](leaf, adjacency)))
        else:
            raise NotRecomputed(f"no Renyi bound for {leaf['type']}")
    gaussians = divergence_of_gaussian_steps(steps)
    return lambda orders: gaussians(orders) + sum(count * part(orders) for count, part in parts)


def _divergence_of_worst_event(leaf: Event, adjacency: str) -> Divergence:
    inner = [_renyi_divergence_of_event(event, adjacency) for event in leaf["events"]]
    return lambda orders: np.asarray(np.max([one(orders) for one in inner], axis=0))


def _divergence_of_noisy_max(leaf: Event, adjacency: str) -> Divergence:
    return pure_divergence((2 if adjacency == REPLACE else 1) / float(leaf["noise_scale"]))


def _divergence_of_search(leaf: Event, adjacency: str) -> Divergence:
    law, inner = leaf["tries"], _renyi_divergence_of_event(leaf["event"], adjacency)
    if leaf["limit"] is not None or law["type"] not in _SLOPES:
        raise NotRecomputed("no Renyi bound for this law of the number of tries")
    if law.get("gamma") == 1:
        return inner
    if law["type"] == "EachPoint":
        return lambda orders: law["count"] * inner(orders)
    if law["type"] == "NegativeBinomial":
        mean = float(_pgf_derivative_of_negative_binomial(law)(np.ones(1))[0])
        return negative_binomial_search_divergence(inner, float(law["eta"]), float(law["gamma"]), mean)
    sides = delta_curves_of_event(leaf["event"], adjacency)
    return poisson_search_divergence(
        inner, float(law["mean"]), lambda at: np.asarray(np.max([one(at) for one in sides], axis=0))
    )


_DIVERGENCES: Mapping[str, Callable[[Event, str], Divergence]] = {
    "WorstDpEvent": _divergence_of_worst_event,
    "NoisyMaxDpEvent": _divergence_of_noisy_max,
    "SelectionDpEvent": _divergence_of_search,
}


def least_possible_epsilon_of_event(event: Event, delta: float, adjacency: str) -> float:
    """What an event costs at least, up to the looseness of this program: each of its parts alone, and of a search one.

    If all scores are equal, a search shows one run, with the probability that it makes any. Batches that are drawn from
    a sample, and mechanisms without a tight bound here, count as 0.
    """
    steps = [
        (leaf, count)
        for leaf, count in leaf_events_with_counts(event)
        if _gaussian_steps_of_leaf(leaf, count, adjacency) is not None
    ]
    together = [{"type": "SelfComposedDpEvent", "event": leaf, "count": count} for leaf, count in steps]
    costs = [epsilon({"type": "ComposedDpEvent", "events": together}, delta, adjacency)] if steps else []
    for leaf, _ in leaf_events_with_counts(event):
        if leaf["type"] == "WorstDpEvent":
            costs += [least_possible_epsilon_of_event(inner, delta, adjacency) for inner in leaf["events"]]
        elif "tries" in leaf:
            law = leaf["tries"]
            share = -math.expm1(-float(law["mean"])) if law["type"] == "Poisson" else 1.0
            costs.append(
                least_possible_epsilon_of_event(leaf["event"], delta / share, adjacency) if delta < share else 0.0
            )
    return max(costs, default=0.0)
