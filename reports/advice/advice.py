"""Advice in words: what an epsilon would buy, by measurements on the nearest data set."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dpsweep.accounting.notation import typed
from dpsweep.accounting.records.plan import Plan
from dpsweep.reports.advice.evidence import Comparison, Evidence, Measurement
from dpsweep.reports.content.frozen_features import FrozenFeatures

SOURCE = "docs/search.md"


def comparison_for(plan: Plan, epsilon: float) -> Comparison | None:
    """The nearest measured comparison, by the plan's declared sizes.

    None for numbers in place of classes, and where nothing near was measured.
    """
    config = plan.trials[0].config
    declared, features = config.get("dataset", {}), FrozenFeatures.of(config)
    if not {"name", "records", "shape", "classes"} <= set(declared) or declared["classes"] == 1:
        return None
    protected = declared.get("units") or declared["records"]
    inputs = math.prod(declared["shape"]) if features is None else features.size
    return Evidence.read().nearest(declared["name"], protected, inputs, epsilon, features=features is not None)


def in_one_sentence(found: Comparison | None) -> Iterator[str]:
    """The lines of a sentence on what the epsilon bought, for a model and for a map; none without a comparison."""
    if found is None:
        return
    best, best_map = found.best, found.best_map
    measured = f"Measured on {found.measured_on.name} at epsilon {typed(found.epsilon)}"
    yield f"{measured} ({SOURCE}; dpsweep advise ranks all ways):"
    if best_map is not best:
        yield f"for a model (no map), {best.way.name}: {_accuracy(best)}{'.' if best_map is None else ';'}"
    if best_map is not None:
        yield f"for a map and a model, {best_map.way.name}: {_accuracy(best_map)}."


def in_a_table(found: Comparison, noise: float) -> Iterator[str]:
    """All ways, a line each, and what to add to a sweep's command for the best ones.

    `noise` is the noise multiplier at which one run alone costs the epsilon.
    """
    on, least = found.measured_on, min(one.searches for one in found.outcomes)
    width = max(len(one.way.name) for one in found.outcomes) + 2
    sizes = f"{on.records} records of {on.inputs} {'frozen features' if on.features else 'numbers'}"
    yield f"What epsilon {typed(found.epsilon)} in all bought on {on.name} ({sizes})\n"
    yield f"{'way':<{width}}  {'accuracy':>13}  shows    overrides"
    for one in found.outcomes:
        name = f"{one.way.name} *" if one.as_good_as(found.best) else one.way.name
        shows = "a map" if one.way.shows_map else "a model"
        yield f"{name:<{width}}  {_accuracy(one):>13}  {shows:<7}  {found.overrides(one, noise)}"
    yield (
        f"\nMeans over {least} or more searches, with 95 % intervals, on public test records, by logistic regression "
        f"({SOURCE})."
    )
    yield "* is not told apart from the best. Every way costs the whole epsilon."
    yield f"For a model (no map), add to `dpsweep sweep`: {found.overrides(found.best, noise)}"
    if found.best_map is not None and found.best_map is not found.best:
        yield f"For a map and a model, add to `dpsweep sweep`: {found.overrides(found.best_map, noise)}"


def _accuracy(one: Measurement) -> str:
    return f"{100 * one.mean:.1f} % ± {100 * one.margin:.1f}"
