"""The price of a search under several rules, side by side, before anything runs.

>>> from dpsweep.accounting import Composition, Panel, PlanEvent, Pld, PrivateSelection, Rdp, poisson_gaussian, repeat
>>> run = PlanEvent(training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0), 5000))
>>> rules = {"everything": Composition(), "winner only": PrivateSelection()}
>>> offers = offer_of_each_rule(rules, [run] * 35, Panel(claimants=(Pld(), Rdp())), delta=1e-5)
>>> [(offer.label, round(offer.epsilon, 2)) for offer in offers]
[('everything', 28.25), ('winner only', 5.56)]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.panel import Panel, Quote
from dpsweep.accounting.rule_words import chance_of_best, expected_tries
from dpsweep.accounting.selection.interface import Disclosure, SelectionRule

BEST_SHARE = 0.1
"""`chance_of_best` is the chance of having tried one of this share of the points, the best ones."""

SHOWN: dict[str, frozenset[Disclosure]] = {
    "all": frozenset(Disclosure),
    "winner": frozenset({Disclosure.WINNER, Disclosure.WINNER_SCORE}),
}
"""The disclosures that each value of `show` asks for."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One rule's terms for a search; `quote` is None if the rule or the accountants refuse; `refusal` says why.

    `runs` says whether sweeps over these points run under this rule, and are not only planned.
    """

    label: str
    rule: SelectionRule
    expected_tries: float
    chance_of_best: float
    quote: Quote | None
    runs: bool
    refusal: str = ""

    @property
    def epsilon(self) -> float:
        """The price; infinity if there is none."""
        return math.inf if self.quote is None else self.quote.epsilon

    def can_show_results(self, results: str) -> bool:
        """Whether this rule releases the results that a user asked to see."""
        return SHOWN[results] <= self.rule.discloses


def may_sweep_run_under_rule(rule: SelectionRule, trials: Sequence[PlanEvent]) -> bool:
    """Whether a sweep over these points runs under this rule, or the rule refuses them and says why."""
    try:
        return rule.runs(rule.event(trials), trials)
    except DpsweepError:
        return True


def offer_of_each_rule(
    rules: Mapping[str, SelectionRule],
    trials: Sequence[PlanEvent],
    panel: Panel,
    *,
    delta: float,
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE,
    unit: str = "record",
) -> tuple[Offer, ...]:
    """An offer from each rule for a search over points with these events, in the order of the rules."""
    offers = []
    for label, rule in rules.items():
        quote, runs, refusal = None, False, ""
        try:
            event = rule.event(trials)
            runs = rule.runs(event, trials)
            quote = panel.quote(event, delta, adjacency, unit)
        except DpsweepError as cause:
            refusal = str(cause)
        offers.append(
            Offer(
                label=label,
                rule=rule,
                expected_tries=expected_tries(rule, len(trials)),
                chance_of_best=chance_of_best(rule, len(trials), BEST_SHARE),
                quote=quote,
                runs=runs,
                refusal=refusal,
            )
        )
    return tuple(offers)


def cheapest_offer_showing_results(offers: Sequence[Offer], results: str) -> Offer | None:
    """The cheapest offer among the rules that run and show these results; None if none of them has a finite price."""
    able = [
        offer for offer in offers if offer.runs and offer.can_show_results(results) and math.isfinite(offer.epsilon)
    ]
    return min(able, key=lambda offer: offer.epsilon, default=None)
