"""docs/ledger.md is true: its numbers are computed, its commands exist, its roles can do what they are for."""

from __future__ import annotations

import doctest
import re
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.sweeper.commands.budget import VERBS
from tests.databases import Server

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ledger.md").read_text()
ONE = Guarantee(epsilon=1.0, delta=1e-5)


def test_the_numbers_of_the_page_are_computed() -> None:
    failed, attempted = doctest.testfile(str(ROOT / "docs" / "ledger.md"), module_relative=False)
    assert attempted > 0
    assert failed == 0


def test_the_numbers_in_its_sentences_are_those_that_were_computed() -> None:
    assert "\n11\n" in PAGE
    assert "(4, 94)" in PAGE
    assert "Eleven sweeps, or 94." in PAGE


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
        (str(code.value), code.meaning) for code in ExitCode
    ]


def test_the_role_of_the_page_adds_lines_and_can_do_nothing_else(server: Server) -> None:
    place = server.place()
    schema = place.address.rpartition("%3D")[2]
    Ledger(place.address).open_account("digits", Guarantee(epsilon=10.0, delta=1e-4))
    statements = PAGE.partition("```sql\n")[2].partition("```")[0]
    place.run(*statements.replace("SCHEMA public", f"SCHEMA {schema}").replace("sweeps", f"{schema}_role").split(";\n"))
    ledger = Ledger(server.address(schema, f"{schema}_role"))
    ledger.charge_trials_and_return_entry("digits", plan="p", trials=["a"], cost=ONE, record={"reason": "plan"})
    ledger.open_account("mnist", Guarantee(epsilon=10.0, delta=1e-4))
    assert ledger.verify_and_count_entries() == 3
    for forbidden in (*place.unguard, "UPDATE entries SET plan = 'q'", "DELETE FROM entries", "DROP TABLE entries"):
        with (
            closing(server.connect(schema, f"{schema}_role")) as connection,
            pytest.raises(Exception, match=r"must be owner|permission denied"),
        ):
            connection.execute(forbidden)
