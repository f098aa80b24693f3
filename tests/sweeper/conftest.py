"""A place for searches whose jobs are played by the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from accounting.folder import SweepFolder
from accounting.ledger import Ledger
from tests.sweeper.searches import (
    Compose,
    Place,
)


@pytest.fixture
def place(tmp_path: Path, ledger: Ledger, compose_priced: Compose) -> Callable[..., Place]:
    def make(line: Sequence[str], root: str = ".", own: Ledger | None = None) -> Place:
        priced = compose_priced(line)
        folder = SweepFolder(root=(tmp_path / root / "sweeps" / "digits" / priced.plan.id).resolve())
        return Place(priced=priced, folder=folder, ledger=ledger if own is None else own)

    return make
