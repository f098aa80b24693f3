"""The check that a plan's event pays for the execution that its selection rule declares.

A rule declares how a plan under it is executed (`SelectionRule.execution`). Another person may have written a stored
plan, so its event is compared with that declaration before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent, PlanEvent
from dpsweep.accounting.selection.composition import Composition
from dpsweep.accounting.selection.disjoint_parts import DisjointParts
from dpsweep.accounting.selection.final_run import Final
from dpsweep.accounting.selection.hidden_search import HiddenSearch, SearchEvent
from dpsweep.accounting.selection.interface import THE_WINNER, Disclosure, Execution, SelectionRule
from dpsweep.accounting.selection.noisy_max import NoisyMax


def pays_for_execution(rule: SelectionRule, event: PlanEvent, points: Sequence[PlanEvent]) -> bool:
    """Whether `event` is the price of the rule's declared execution over these points; False if it declares none.

    A rule with drawn tries must hide the losers, since the price of a search covers its winner alone.

    >>> from dpsweep.accounting import Composition, NoisyMax, PrivateSelection, gaussian
    >>> points = [PlanEvent(training=gaussian(noise_multiplier=2.0), validation=gaussian(noise_multiplier=9.0))]
    >>> rules = (Composition(), PrivateSelection(), NoisyMax(noise_scale=2.0))
    >>> [pays_for_execution(rule, rule.event(points), points) for rule in rules]
    [True, True, True]
    """
    if isinstance(rule, Final):
        runs = rule.execution is not None and same_parts(event, rule.event(points))
        return runs and pays_for_execution(rule.rule, rule.rule.event(points), points)
    match rule.execution:
        case Execution.EVERY_POINT:
            apart = isinstance(rule, DisjointParts)
            paying = rule if apart else Composition()
            return apart == (event.final is not None) and same_parts(event, paying.event(points))
        case Execution.DRAWN_TRIES if isinstance(rule, NoisyMax):
            return event.validation is not None and same_parts(event, rule.event(points))
        case Execution.DRAWN_TRIES:
            search = search_paid_by(event, points)
            shown = THE_WINNER if search is None or search.drawn else THE_WINNER | {Disclosure.NUMBER_OF_TRIES}
            return search is not None and rule.discloses <= shown
        case _:
            return False


def hidden_search_of(rule: SelectionRule, event: PlanEvent, points: Sequence[PlanEvent]) -> HiddenSearch | None:
    """The search over these points that a plan's event pays for under this rule, before the final run if it has one."""
    if not isinstance(rule, Final):
        return search_paid_by(event, points)
    return search_paid_by(rule.rule.event(points), points) if same_parts(event, rule.event(points)) else None


def search_paid_by(event: PlanEvent, points: Sequence[PlanEvent]) -> HiddenSearch | None:
    """The search, by one law for all records, over these points; None if the event is none."""
    parts = {"training": [point.training for point in points]}
    if scored := [point.validation for point in points if point.validation is not None]:
        parts["validation"] = scored
    if event.parts.keys() != parts.keys():
        return None
    searches = [_search(event.parts[name], runs) for name, runs in parts.items()]
    return searches[0] if all(search == searches[0] for search in searches) else None


def same_parts(one: PlanEvent, other: PlanEvent) -> bool:
    """Whether two plan events are the same mechanisms on the same populations."""
    return one.parts.keys() == other.parts.keys() and all(
        events.same(part, other.parts[name]) for name, part in one.parts.items()
    )


def _search(event: DpEvent, runs: Sequence[DpEvent]) -> HiddenSearch | None:
    leaves = events.flatten(event)
    if len(leaves) != 1 or leaves[0][1] != 1 or not isinstance(leaves[0][0], SearchEvent):
        return None
    leaf = leaves[0][0]
    search = HiddenSearch(event=replace(leaf, event=events.nothing()))
    if not search.drawn and search.law.mean != len(runs):
        return None
    price = events.mixture(runs) if search.drawn else events.worst(runs)
    return search if events.same(leaf.event, price) else None
