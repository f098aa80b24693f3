"""The plan of a request on its account: the ledger decides which units it leaves out, and whether it has a card."""

from __future__ import annotations

from dataclasses import replace

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.sealed_parts import number_of_fresh_part
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.coordinator.request import SweepRequest, Verb
from dpsweep.sweeper.planning.plan_builder import compose_priced_plan


def compose_plan_for_account(request: SweepRequest, ledger: Ledger) -> PricedPlan:
    """The priced plan of a request, by what the charges of its account say of sealed parts.

    The plan of a command that was charged before is the same one again, also if its card has taken the last part: so
    first comes the plan as it would be if no part had answered. A rehearsal has an account of its own.
    """
    account = str(request.plan.account)
    if request.verb is Verb.REHEARSE or account not in ledger.account_names():
        return compose_priced_plan(request.points, request.plan)
    statement = ledger.statement(account)
    earlier = statement.sealed_charges
    if not earlier or earlier[0] is None:
        return compose_priced_plan(request.points, request.plan, earlier)
    priced = compose_priced_plan(request.points, request.plan, (replace(earlier[0], card=None),))
    asked = priced.plan.sealed_charge
    if (
        priced.plan.card is None
        or asked is None
        or statement.attempts_of_plan(priced.plan.id).charges
        or number_of_fresh_part(earlier, asked) is not None
    ):
        return priced
    return compose_priced_plan(request.points, request.plan, earlier)
