"""A ledger with a history, and the ways in which it is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from dpsweep.accounting.events.build import PlanEvent, poisson_gaussian, repeat
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import Addition, Policy
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.renyi_filter import RenyiFilter
from dpsweep.accounting.ledger.upkeep import charge_outside, close_account, raise_budget
from tests.charges import charge_cost, charge_event
from tests.databases import Place

BUDGET = Guarantee(epsilon=24.0, delta=3e-4)
HIGHER = Guarantee(epsilon=30.0, delta=4e-4)
ONE = Guarantee(epsilon=1.0, delta=1e-5)
FILTER = RenyiFilter(order=4.0, epsilon=20.0, delta=9e-5)
EVENT = PlanEvent(training=repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=1.5), 20))


def charge(ledger: Ledger, plan: str, account: str = "digits") -> str:
    one = {"plan": plan, "trials": ["a"], "record": {"reason": "plan"}}
    if ledger.statement(account).balance.policy == Addition():
        return charge_cost(ledger, account, cost=ONE, **one).digest
    return charge_event(ledger, account, event=EVENT, **one).digest


def reserved(ledger: Ledger, account: str = "digits") -> dict[str, float]:
    return {name: float(amount) for name, amount in ledger.statement(account).balance.reserved.items()}


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for account in ledger.account_names() for entry in ledger.statement(account).entries]


def copied(place: Place) -> Callable[[], None]:
    """Copies the lines of a ledger now; what is returned puts the copy into its place."""
    with closing(place.connect()) as connection:
        rows = connection.execute("SELECT * FROM entries ORDER BY seq").fetchall()

    def put_back() -> None:
        place.tamper("DELETE FROM entries")
        with closing(place.connect()) as connection:
            for row in rows:
                connection.execute(f"INSERT INTO entries VALUES ({', '.join([place.mark] * len(row))})", row)
            connection.commit()

    return put_back


def emptied(place: Place) -> None:
    place.tamper("DELETE FROM entries")


def without_tables(place: Place) -> None:
    place.run("DROP TABLE entries", "DROP TABLE schema")


def without_file(place: Place) -> None:
    if "://" in place.address:
        without_tables(place)
    else:
        shutil.rmtree(Path(place.address).parent)


def of_no_bytes(place: Place) -> None:
    without_file(place)
    if "://" not in place.address:
        Path(place.address).parent.mkdir()
        Path(place.address).touch()


LOSSES = [emptied, without_tables, without_file, of_no_bytes]
Loss = Callable[[Place], None]


def lived(place: Place, policy: Policy | None = None) -> tuple[Ledger, Callable[[], None]]:
    """A ledger with a history, and what puts an older copy of it back."""
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET, policy)
    ledger.open_account("mnist", BUDGET)
    charge(ledger, "p")
    put_back = copied(place)
    charge(ledger, "q")
    charge_outside(ledger, "digits", ONE, "a pilot study")
    raise_budget(ledger, "digits", HIGHER)
    charge(ledger, "r", "mnist")
    close_account(ledger, "mnist")
    ledger.open_account("adult", BUDGET)
    charge(ledger, "s", "adult")
    return ledger, put_back
