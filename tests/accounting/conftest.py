"""Ledgers with one open account."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from tests.accounting.books import BUDGET
from tests.databases import Place


@pytest.fixture
def books(place: Place) -> Ledger:
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    return ledger


@pytest.fixture
def file(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "books" / "ledger.sqlite")
    ledger.open_account("digits", BUDGET)
    return ledger
