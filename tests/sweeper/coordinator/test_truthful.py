"""Where an exit code says that nothing was charged, nothing was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hydra.errors import InstantiationException

from dpsweep.accounting.errors import BadInput, BudgetRefused, ContractBroken, LedgerDamaged, NoReceipt
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.sweeper.coordinator.guards import refusal_after_charge_as_contract_broken
from tests.charges import charge_cost
from tests.sweeper.search_programs import GRID, Place

REFUSALS = [BadInput, NoReceipt, BudgetRefused, InstantiationException]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_after_the_charge_does_not_say_that_nothing_was_charged(
    place: Callable[..., Place], ledger: Ledger, refusal: type[Exception]
) -> None:
    here = place(GRID)
    with pytest.raises(refusal, match="too late"), refusal_after_charge_as_contract_broken(ledger, here.plan):
        raise refusal("too late")

    def charge_and_refuse() -> None:
        cost = here.priced.quote.guarantee
        ledger.open_account(here.plan.account, here.plan.budget)
        charge_cost(ledger, here.plan.account, plan=here.plan.id, trials=["a"], cost=cost, record={"reason": "plan"})
        raise refusal("too late\nand more")

    with (
        pytest.raises(ContractBroken, match=f"^Plan {here.plan.id} was charged, .* refused: too late.$"),
        refusal_after_charge_as_contract_broken(ledger, here.plan),
    ):
        charge_and_refuse()
    with pytest.raises(refusal), refusal_after_charge_as_contract_broken(ledger, here.plan):
        raise refusal("an earlier charge is not this command's")


def test_what_says_nothing_of_charges_stays_what_it_is(place: Callable[..., Place], ledger: Ledger) -> None:
    here = place(GRID)
    with pytest.raises(LedgerDamaged, match="gone"), refusal_after_charge_as_contract_broken(ledger, here.plan):
        raise LedgerDamaged("gone")
