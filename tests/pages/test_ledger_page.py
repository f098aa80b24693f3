"""docs/ledger.md is true: its numbers are computed, its commands exist, its roles can do what they are for."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from dpsweep.accounting import PlanEvent, Pld, poisson_gaussian, repeat
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import DIVERGENCE
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.renyi_filter import RenyiFilter
from dpsweep.accounting.ledger.upkeep import verify_entries
from dpsweep.sweeper.commands.budget import VERBS
from dpsweep.sweeper.commands.one_sentence import MEANINGS
from tests.charges import charge_cost
from tests.databases import Server

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ledger.md").read_text()
ONE = Guarantee(epsilon=1.0, delta=1e-5)


BUDGET = Guarantee(epsilon=8.0, delta=1e-5)
ORDERS = [tenths / 10 for tenths in range(25, 200)]


def sweep(steps: int, noise_multiplier: float) -> PlanEvent:
    return PlanEvent(training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=noise_multiplier), steps))


def fits_by_addition(event: PlanEvent, sweeps: int) -> bool:
    return sweeps * Pld().epsilon(event.training, BUDGET.delta / sweeps, BUDGET.adjacency) <= BUDGET.epsilon


def limit_by_filter(order: float) -> float:
    return float(_filter(order).amount_limits(BUDGET)[DIVERGENCE])


def sweeps_by_filter(event: PlanEvent, order: float) -> int:
    return int(limit_by_filter(order) / _filter(order).amounts_of_charge(BUDGET, event)[DIVERGENCE])


def _filter(order: float) -> RenyiFilter:
    return RenyiFilter(order=order, epsilon=BUDGET.epsilon, delta=BUDGET.delta)


def test_the_numbers_of_the_page_are_computed() -> None:
    small, large = sweep(1000, 4.0), sweep(5000, 1.1)
    most = max(sweeps for sweeps in range(1, 21) if fits_by_addition(small, sweeps))
    assert f"By addition {most}\nof them fit." in PAGE
    rows = re.findall(r"^\| (?:`policy.order`|sweeps) \| ([\d. |]+) \|$", PAGE, re.M)
    orders, counts = (row.split(" | ") for row in rows)
    assert [int(count) for count in counts] == [sweeps_by_filter(small, float(order)) for order in orders]
    assert f"per order, {max(ORDERS, key=lambda order: limit_by_filter(order) / order)} here." in PAGE
    assert fits_by_addition(large, 1)
    assert max(sweeps_by_filter(large, order) for order in ORDERS) == 0


def test_every_command_of_the_page_exists_and_none_is_missing() -> None:
    named = set(re.findall(r"dpsweep budget ([a-z]+)\b(?!=)", PAGE))
    assert named == set(VERBS) - {"show"}


def test_every_setting_of_the_page_exists() -> None:
    config = yaml.safe_load((ROOT / "conf" / "config.yaml").read_text())
    for group, key in re.findall(r"`(checkpoint|plan|privacy)\.(\w+)`", PAGE):
        assert key in config[group]
    for name in re.findall(r"`policy=(\w+)`", PAGE):
        assert (ROOT / "conf" / "policy" / f"{name}.yaml").is_file()


def test_the_exit_codes_of_the_page_are_the_programs() -> None:
    table = PAGE.partition("## Exit codes")[2]
    assert re.findall(r"^\| (\d+) \| (.*) \|$", table, re.MULTILINE) == [
        (str(code.value), meaning) for code, meaning in MEANINGS.items()
    ]


def test_the_role_of_the_page_adds_lines_and_can_do_nothing_else(server: Server) -> None:
    place = server.place()
    schema = place.address.rpartition("%3D")[2]
    Ledger(place.address).open_account("digits", Guarantee(epsilon=10.0, delta=1e-4))
    statements = PAGE.partition("```sql\n")[2].partition("```")[0]
    place.run(*statements.replace("SCHEMA public", f"SCHEMA {schema}").replace("sweeps", f"{schema}_role").split(";\n"))
    ledger = Ledger(server.address(schema, f"{schema}_role"))
    charge_cost(ledger, "digits", plan="p", trials=["a"], cost=ONE, record={"reason": "plan"})
    ledger.open_account("mnist", Guarantee(epsilon=10.0, delta=1e-4))
    assert verify_entries(ledger.chain) == 3
    for forbidden in (*place.unguard, "UPDATE entries SET plan = 'q'", "DELETE FROM entries", "DROP TABLE entries"):
        with (
            closing(server.connect(schema, f"{schema}_role")) as connection,
            pytest.raises(Exception, match=r"must be owner|permission denied"),
        ):
            connection.execute(forbidden)
