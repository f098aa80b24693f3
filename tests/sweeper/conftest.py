"""A place for searches whose jobs are played by the test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.sweep_folder import SweepFolder, private_store_of_plan
from tests.sweeper.search_programs import (
    Compose,
    Place,
)


@pytest.fixture
def place(
    tmp_path: Path, ledger: Ledger, compose_priced: Compose, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Place]:
    def make(line: Sequence[str], root: str = ".", own: Ledger | None = None) -> Place:
        with monkeypatch.context() as own_modules:
            own_modules.syspath_prepend(tmp_path)
            priced = compose_priced(line)
        sys.modules.pop("my_model", None)
        log = ledger if own is None else own
        store = private_store_of_plan(log, priced.plan.account, priced.plan.id)
        folder = SweepFolder(root=(tmp_path / root / "sweeps" / "digits" / priced.plan.id).resolve(), store=store)
        return Place(priced=priced, folder=folder, ledger=log)

    return make
