"""What else the same budget would buy: other rules at this noise, and ways of searching as they were measured.

Nothing here is charged or written, and nothing reads the records or the scores of an account.
"""

from __future__ import annotations

from dataclasses import replace

from dpsweep.accounting.codec import KIND
from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.accounting.ledger.book import Statement
from dpsweep.accounting.pricing.outlook import rule_outlooks
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.printing import print_line, print_lines
from dpsweep.reports.advice.advice import (
    advice_sentence_lines,
    advice_table_lines,
    nearest_comparison_for_plan,
    why_nothing_was_measured,
)
from dpsweep.sweeper.coordinator import price_table
from dpsweep.sweeper.coordinator.request import SweepRequest
from dpsweep.sweeper.planning.plan_builder import compose_priced_plan
from dpsweep.sweeper.terminal import Terminal

COMPOSITION = {KIND: "composition"}
"""The rule of a single run."""


def print_alternatives(
    request: SweepRequest, priced: PricedPlan, statement: Statement | None, *, admitted: bool
) -> None:
    """Prints what other rules would cost if `--rules` or `fit=true` asks, what would fit, and what was measured."""
    plan = priced.plan
    is_asked = request.rules or request.fit
    if is_asked or not admitted:
        outlooks = rule_outlooks(priced, statement, fits=request.fit)
        if is_asked:
            price_table.print_price_under_each_rule(priced, outlooks, request.plan.show)
        if outlooks.advice:
            Terminal().print_line(outlooks.advice)
    if not is_asked:
        print_line("`--rules` prints what each other way of choosing the winner would cost, and what it may show.")
    nearest = nearest_comparison_for_plan(plan, plan.target_epsilon or priced.quote.epsilon)
    for sentence in advice_sentence_lines(nearest, plan.account):
        print_line(sentence)


def print_measured_search_advice(request: SweepRequest) -> ExitCode:
    """Prints what the epsilon bought under each way of searching where it was measured; writes nothing."""
    alone = replace(request.plan, tuning=COMPOSITION, search={}, final=False, offered={})
    priced = compose_priced_plan(request.points[:1], alone)
    if priced.plan.target_epsilon is None:
        raise BadInput("Expected privacy.epsilon, what a whole search may cost, in place of the noise.")
    if (found := nearest_comparison_for_plan(priced.plan, priced.plan.target_epsilon)) is None:
        raise BadInput(why_nothing_was_measured(priced.plan, priced.plan.target_epsilon))
    print_lines("\n".join(advice_table_lines(found, priced.plan)))
    return ExitCode.DONE
