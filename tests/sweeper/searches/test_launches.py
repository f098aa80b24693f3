"""A coordinator that is killed within its launch, again and again: the private store keeps the ledger's last launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import PrivateStore
from dpsweep.sweeper.searches.admission import (
    open_account_or_check_budget,
    record_launch_and_return_nonce,
)
from tests.sweeper.search_programs import GRID, Place

INSTANTS = {
    "before the store": (PrivateStore, "announce_launch"),
    "before the ledger": (Ledger, "launch"),
    "before it is confirmed": (PrivateStore, "confirm_launch"),
}


class Killed(Exception):
    """The coordinator's end at an instant of the test's choice."""


@pytest.fixture
def here(place: Callable[..., Place]) -> Place:
    """An account without a launch."""
    here = place(GRID)
    open_account_or_check_budget(here.priced, here.ledger)
    return here


def killed(here: Place, instant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that ends at this instant."""

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(*INSTANTS[instant], die)
        with pytest.raises(Killed):
            record_launch_and_return_nonce(here.plan, here.ledger, here.folder.private_store)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("instants", list(product(INSTANTS, repeat=3)), ids=", ".join)
def test_no_kills_within_launches_make_a_store_look_lost(
    here: Place, first: int, instants: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, nonces = here.folder.private_store, []
    nonces += [record_launch_and_return_nonce(here.plan, here.ledger, store) for _ in range(first)]
    for instant in instants:
        killed(here, instant, monkeypatch)
        reached = here.ledger.attempts_of_plan(here.plan.account, here.plan.id).launch
        assert store.has_launch_nonce(reached)
        assert reached is None or reached in nonces or not store.is_current_launch(reached), "it handed out no receipts"
    last = record_launch_and_return_nonce(here.plan, here.ledger, store)
    assert store.has_launch_nonce(last)
    assert store.is_current_launch(last)
    assert not any(map(store.is_current_launch, nonces))


def test_a_store_that_was_lost_is_not_repaired_by_a_launch_that_is_killed(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = here.folder.private_store
    lost = record_launch_and_return_nonce(here.plan, here.ledger, store)
    (store.root / "launch.json").unlink()
    killed(here, "before the ledger", monkeypatch)
    assert here.ledger.attempts_of_plan(here.plan.account, here.plan.id).launch == lost
    assert not store.has_launch_nonce(lost)
